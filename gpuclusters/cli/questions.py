"""What `gpu-clusters init` asks for each type of cluster, and the stack file that the answers make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpuclusters.cli.errors import wrong_option
from gpuclusters.compat import rke2_matrix
from gpuclusters.config.stack import NAMESPACE, ClusterType

Answers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """What a stack file cannot do without and nobody but its owner knows."""

    key: str
    """Its name in a file of answers."""
    text: str
    default: str | Callable[[Answers], str] | None = None
    """What an empty answer means, `""` that it may be left out; None if there has to be one."""


_MACHINES = Question("machines", "Machines, as NAME=ADDRESS or NAME=ADDRESS:PORT, with spaces")
_USER = Question("user", "Account for SSH, with sudo without a password", "ops")


def _names(answers: Answers) -> list[str]:
    return [one.partition("=")[0] for one in answers["machines"].split()]


def _ranges(key: str) -> Callable[[Answers], str]:
    """The /24 of each address in an answer: a guess that the owner sees before it is taken."""

    def guess(answers: Answers) -> str:
        places = pairs(answers[key], key).values()
        hosts = [urlsplit(one if "//" in one else f"//{one}").hostname or one for one in places]
        try:
            found = {ip_network(f"{ip_address(host)}/24", strict=False) for host in hosts}
        except ValueError as error:
            raise wrong_option(f"{key}: {error}") from error
        return " ".join(sorted(map(str, found)))

    return guess


QUESTIONS: Mapping[ClusterType, tuple[Question, ...]] = {
    ClusterType.CAAS: (
        _MACHINES,
        _USER,
        Question("platform", "Platform of the machines", "supermicro-hgx-h100"),
        Question("layout", "How each board of 8 GPUs is cut, sizes with spaces", "4 4"),
        Question("node-cidrs", "Networks of the machines, closed to tenants", _ranges("machines")),
        Question(
            "bmc", "BMC of each machine, as NAME=https://ADDRESS; empty: no firmware check", ""
        ),
        Question("bmc-cidrs", "Networks of the BMCs, closed to tenants", _ranges("bmc")),
        Question("bmc-user", "Account on the BMCs (reading is enough)", "firmware-reader"),
        Question("firmware", "Accepted firmware, as ITEM=VERSION with spaces; only with BMCs", ""),
        Question("service-vm-url", "Image of the service VM (docs/service-vm.md): its URL"),
        Question("service-vm-sha256", "Its SHA-256"),
        Question("programs-image", "Image of caas/Dockerfile, as NAME@sha256:DIGEST"),
        Question("issuer", "OpenID issuer of the tenants' tokens, https://…"),
        Question("host", "Name of the API in DNS"),
        Question("certificate-issuer", "ClusterIssuer of cert-manager for it", "letsencrypt"),
        Question("tenants", "Tenants, as NAME=GPUS with spaces"),
    ),
    ClusterType.RKE2: (
        _MACHINES,
        _USER,
        Question("servers", "Which of them are servers: 1 or 3", lambda a: _names(a)[0]),
        Question("product", "GPUs of the others", "a100-sxm4-80gb"),
        Question("count", "GPUs in each", "8"),
        Question(
            "version", "Release of RKE2", lambda _: rke2_matrix.matrix().rke2.channels["stable"]
        ),
        Question("checksum", "SHA-256 of that release's sha256sum-amd64.txt"),
        Question("operator", "Release of the GPU Operator", lambda _: _operator()),
    ),
    ClusterType.USERNETES: (
        _MACHINES,
        _USER,
        Question("product", "GPU of every machine", "v100-sxm2-16gb"),
        Question("count", "GPUs in each", "1"),
        Question("usernetes-sha256", "SHA-256 of the archive of Usernetes (docs/usernetes.md)"),
    ),
}


def _operator() -> str:
    releases = rke2_matrix.operators().releases
    return max(releases, key=lambda name: releases[name].date)


def pairs(text: str, key: str) -> dict[str, str]:
    """What `NAME=VALUE NAME=VALUE` says; `key` is what it answers, for the error."""
    found = dict(one.partition("=")[::2] for one in text.split())
    if wrong := [name for name, value in found.items() if not name or not value]:
        raise wrong_option(f"{key}: {wrong[0]!r} is not of the form NAME=VALUE")
    return found


def _caas(answers: Answers, machines: list[str]) -> dict[str, Any]:
    bmcs = pairs(answers["bmc"], "bmc")
    section: dict[str, Any] = {
        "platform": answers["platform"],
        "nodes": [
            {"name": name}
            | ({"bmc": {"url": bmcs[name], "user": answers["bmc-user"]}} if name in bmcs else {})
            for name in machines
        ],
        "partition-layout": [int(size) for size in answers["layout"].split()],
        "kubernetes": {"source": "existing"},
        "network": {key: answers[key].split() for key in ("node-cidrs", "bmc-cidrs")},
        "leases": {"recycle-policy": "reset-only"},
        "service-vm": {
            "image": {"url": answers["service-vm-url"], "sha256": answers["service-vm-sha256"]}
        },
        "programs": {"image": answers["programs-image"]},
        "api": {
            "issuer": answers["issuer"],
            "exposure": {
                "kind": "ingress",
                "ingress-class": "nginx",
                "host": answers["host"],
                "certificate": {
                    "source": "cert-manager",
                    "issuer": answers["certificate-issuer"],
                },
            },
        },
        "tenants": [
            {"name": name, "gpus": int(gpus)}
            for name, gpus in pairs(answers["tenants"], "tenants").items()
        ],
    }
    if bmcs:
        golden = {
            item: [version] for item, version in pairs(answers["firmware"], "firmware").items()
        }
        section["leases"] = {"golden-firmware": {"versions": golden}}
    return section


def _rke2(answers: Answers, machines: list[str]) -> dict[str, Any]:
    servers = answers["servers"].split()
    gpu = {"product": answers["product"], "count": int(answers["count"])}
    agents = [name for name in machines if name not in servers]
    return {
        "version": answers["version"],
        "artifacts": {"source": "download", "checksum": answers["checksum"]},
        "servers": servers,
        "pools": [{"name": "gpu", "nodes": agents, "gpu": gpu}],
        "operator": {"version": answers["operator"]},
    }


def _usernetes(answers: Answers, machines: list[str]) -> dict[str, Any]:
    first, *others = [{"host": name, "number": at} for at, name in enumerate(machines, 1)]
    return {
        "control-plane": first,
        "workers": others,
        "gpus": {"product": answers["product"], "count": int(answers["count"])},
        "version-overrides": {"usernetes-sha256": answers["usernetes-sha256"]},
    }


_SECTIONS = {
    ClusterType.CAAS: _caas,
    ClusterType.RKE2: _rke2,
    ClusterType.USERNETES: _usernetes,
}


def document(kind: ClusterType, stack: str, answers: Answers, keys: Mapping[str, str]) -> str:
    """The stack file.

    Args:
        kind: cluster type.
        stack: name of the stack, and of the cluster.
        answers: by key of a question.
        keys: host key by machine.

    Raises:
        UsageError: an answer has not its form.
    """
    machines: list[dict[str, Any]] = []
    for name, place in pairs(answers["machines"], "machines").items():
        address, _, port = place.partition(":")
        machines.append(
            {"name": name, "address": address}
            | ({"port": int(port)} if port else {})
            | {"host-key": keys[name]}
        )
    try:
        section = _SECTIONS[kind](answers, [one["name"] for one in machines])
    except ValueError as error:
        raise wrong_option(f"an answer is not a number: {error}") from error
    hosts = {"source": "existing", "user": answers["user"], "machines": machines}
    config = {
        f"{NAMESPACE}:cluster-type": kind.value,
        f"{NAMESPACE}:{kind.value}": {"name": stack, "hosts": hosts, **section},
    }
    text = yaml.safe_dump({"config": config}, sort_keys=False, width=1000)
    return f"# yaml-language-server: $schema=gpuclusters/config/schema.json\n{text}"
