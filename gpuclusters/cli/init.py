"""`gpu-clusters init`: the smallest right stack file for machines that one has, its stack and its secrets."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
import yaml

from gpuclusters.cli import engine as engines
from gpuclusters.cli import unfinished
from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.files import read_yaml
from gpuclusters.cli.project import Project, Stack, read_valid
from gpuclusters.compat import rke2_matrix
from gpuclusters.config.cluster import SECRET_KEYS
from gpuclusters.config.fault import told
from gpuclusters.config.stack import NAMESPACE, ClusterType, StackConfig, parse

Answers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """What a stack file cannot do without and nobody but its owner knows."""

    key: str
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
    ClusterType.GKE: (
        Question("project", "Project of Google Cloud: its id"),
        Question("zone", "Zone of the nodes", "us-central1-a"),
        Question("api-ranges", "Networks that you reach the API from, with spaces"),
        Question("product", "GPU of every node", "v100-sxm2-16gb"),
        Question("count", "GPUs in each", "1"),
        Question("machine-type", "Machine type of these nodes", "n1-standard-8"),
        Question("nodes", "How many of them", "2"),
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


def _gke(answers: Answers, _machines: list[str]) -> dict[str, Any]:
    gpu = {"product": answers["product"], "count": int(answers["count"])}
    nodes = {"machine-type": answers["machine-type"], "gpu": gpu, "nodes": int(answers["nodes"])}
    return {
        "project": answers["project"],
        "zone": answers["zone"],
        "network": {
            "cidr": "10.20.0.0/20",
            "pods": "10.24.0.0/16",
            "services": "10.28.0.0/20",
            "control-plane": "172.16.0.0/28",
        },
        "api-ranges": answers["api-ranges"].split(),
        "pools": [
            {"name": "system", "machine-type": "n1-standard-4", "nodes": 1},
            {"name": "gpu", **nodes},
        ],
    }


_SECTIONS = {
    ClusterType.CAAS: _caas,
    ClusterType.RKE2: _rke2,
    ClusterType.USERNETES: _usernetes,
    ClusterType.GKE: _gke,
}


def document(kind: ClusterType, stack: str, answers: Answers, keys: Mapping[str, str]) -> str:
    """The stack file of a stack and cluster of this name; `keys` are host keys by machine."""
    machines: list[dict[str, Any]] = []
    for name, place in pairs(answers.get("machines", ""), "machines").items():
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
    if machines:
        hosts = {"source": "existing", "user": answers["user"], "machines": machines}
        section = {"hosts": hosts, **section}
    config = {
        f"{NAMESPACE}:cluster-type": kind.value,
        f"{NAMESPACE}:{kind.value}": {"name": stack, **section},
    }
    text = yaml.safe_dump({"config": config}, sort_keys=False, width=1000)
    return f"# yaml-language-server: $schema=gpuclusters/config/schema.json\n{text}"


if TYPE_CHECKING:
    import asyncssh


async def scan(machines: Mapping[str, str]) -> dict[str, asyncssh.SSHKey]:
    """The ed25519 host key of each machine (ADDRESS or ADDRESS:PORT), which nobody has compared yet."""
    # The other commands do not wait for it.
    import asyncssh

    from gpuclusters.host.connect import CONNECT_TIMEOUT_SECONDS

    async def key(place: str) -> asyncssh.SSHKey | str:
        address, _, port = place.partition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                found = await asyncssh.get_server_host_key(
                    address, int(port or 22), server_host_key_algs=["ssh-ed25519"], config=None
                )
        except (OSError, asyncssh.Error, TimeoutError, ValueError) as error:
            return str(error) or "no answer"
        return found or "no ed25519 host key"

    found = dict(zip(machines, await asyncio.gather(*map(key, machines.values())), strict=True))
    keys = {name: one for name, one in found.items() if not isinstance(one, str)}
    failed = (f"{name} ({machines[name]}): {found[name]}" for name in found if name not in keys)
    if len(keys) < len(found):
        raise RunError("cannot read host keys:\n  " + "\n  ".join(failed), "command.no-init")
    return keys


def command(
    kind: Annotated[ClusterType, typer.Argument(help="Type of the cluster.")],
    stack: Annotated[str, typer.Option("--stack", "-s", help="Name of the stack.")] = "prod",
    answers: Annotated[
        Path | None, typer.Option(help="YAML file with answers by key; the others are asked.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", help="KEY=FILE, a secret to set; those left out are asked."),
    ] = None,
    accept_host_keys: Annotated[
        bool,
        typer.Option("--accept-host-keys", help="Take the host keys that are shown unasked."),
    ] = False,
) -> None:
    """Write the smallest stack file for machines that you have, or for GKE; make its stack; set its secrets.

    Asks what it cannot know, reads the machines' host keys and shows their fingerprints to compare. Writes
    nothing until the answers make a valid configuration.
    """
    project = Project.find()
    file = project.folder / f"Pulumi.{stack}.yaml"
    if file.exists():
        raise wrong_option(f"{file.name} exists already; name another stack with --stack")
    files = {key: Path(name) for key, name in pairs(" ".join(secret or ()), "--secret").items()}
    if wrong := [key for key in files if key not in SECRET_KEYS]:
        raise wrong_option(f"--secret: {wrong[0]} is none of {', '.join(SECRET_KEYS)}")
    if absent := [str(path) for path in files.values() if not path.is_file()]:
        raise UsageError(f"--secret: {', '.join(absent)} cannot be read", "command.unreadable-file")
    given = ask(kind, _read(answers, kind))
    lines = {} if kind is ClusterType.GKE else _host_keys(given, accepted=accept_host_keys)
    text = document(kind, stack, given, lines)
    _check(file.name, text)
    file.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {file.name}")
    _make_stack(project, stack, files)


def _host_keys(given: Answers, *, accepted: bool) -> dict[str, str]:
    """The host key of each machine, once its fingerprint was compared."""
    machines = pairs(given["machines"], "machines")
    keys = asyncio.run(scan(machines))
    for name, key in keys.items():
        typer.echo(f"{name}  {machines[name]}  {key.get_fingerprint()}")
    typer.echo("on each machine: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    if not accepted:
        typer.confirm("Are these the fingerprints on the machines' consoles?", abort=True)
    return {name: key.export_public_key().decode().strip() for name, key in keys.items()}


def _read(file: Path | None, kind: ClusterType) -> Answers:
    if file is None:
        return {}
    document = read_yaml(file) or {}
    known = [question.key for question in QUESTIONS[kind]]
    if not isinstance(document, dict) or set(document) - set(known):
        raise wrong_option(f"{file}: write answers by key; known: {', '.join(known)}")
    return {key: str(value) for key, value in document.items()}


def ask(kind: ClusterType, given: Answers) -> Answers:
    """Every answer: those that are given, and the others from the terminal, or the default without one."""
    answers: Answers = dict(given)
    missing = []
    for question in QUESTIONS[kind]:
        if question.key in answers:
            continue
        default = question.default
        if callable(default):
            default = default(answers) if "machines" in answers else ""
        if sys.stdin.isatty():
            answers[question.key] = typer.prompt(question.text, default=default)
        elif default is not None:
            answers[question.key] = default
        else:
            missing.append(question.key)
    if missing:
        raise wrong_option(
            f"there is no terminal to ask for {', '.join(missing)}; write them into --answers FILE"
        )
    return answers


def _check(name: str, text: str) -> None:
    config = yaml.safe_load(text)["config"]
    found = parse({key.removeprefix(f"{NAMESPACE}:"): value for key, value in config.items()})
    if not isinstance(found, StackConfig):
        faults = "\n".join(f"  {told(Path(name), fault)}" for fault in found)
        raise wrong_option(f"these answers make no valid stack file; nothing was written\n{faults}")


def _make_stack(project: Project, stack: str, files: Mapping[str, Path]) -> None:
    """Make the stack in a backend, set its secrets, and say what is left to do."""
    # It brings Pulumi's runtime: whoever answers questions does not wait for that.
    from gpuclusters.config.cluster import needed

    exports = _backend(project, stack)
    env = os.environ | exports
    engine = engines.choose()
    typer.echo(engine.line)
    Stack(project, stack, engine, env).make()
    later = [f"export {variable}={value}" for variable, value in exports.items()]
    for key, why in needed(read_valid(project, stack).section).items():
        text = f"File with the secret {key}, {why} (empty: set it later)"
        path = files.get(key) or _asked(text, "")
        setting = ("config", "set", "--secret", key, "--stack", stack)
        if not path:
            later.append(f"pulumi {' '.join(setting)} < FILE")
            continue
        with Path(path).open(encoding="utf-8") as content:
            if engine.call(*setting, folder=project.folder, env=env, stdin=content):
                raise RunError(f"the secret {key} cannot be set; see above", "command.no-init")
    later += [f"gpu-clusters {verb} --stack {stack}" for verb in ("doctor", "preview", "up")]
    typer.echo("\n  ".join(("next:", *later)))


def _backend(project: Project, stack: str) -> dict[str, str]:
    """Environment variables that find state and passphrase, as far as nobody has set them."""
    exports = {}
    if not unfinished.backend_url(project.folder, os.environ):
        default = f"file://{Path.home() / '.local' / 'state' / 'gpu-clusters'}"
        where = "Where the state is kept: file://, s3://, gs://, azblob:// or https://"
        url = _asked(where, default)
        exports[unfinished.BACKEND_VARIABLE] = url
        if (folder := unfinished.folder_of(url)) is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & set(os.environ):
        sealed = Path.home() / ".config" / "gpu-clusters" / f"{stack}.passphrase"
        sealed.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not sealed.exists():
            sealed.touch(mode=0o600)
            sealed.write_text(secrets.token_urlsafe(32), encoding="utf-8")
        exports["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(sealed)
    return exports


def _asked(text: str, default: str) -> str:
    return str(typer.prompt(text, default=default)) if sys.stdin.isatty() else default
