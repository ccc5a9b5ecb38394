"""A caas stack that makes its own cluster with RKE2: what is declared, in which order, and what stays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from gpuclusters.rke2 import host_config, releases
from tests.components.recorder import Recorder
from tests.stacks.declaring import declared

VERSION = "v1.35.7+rke2r1"


def stack(
    *agents: str, version: str = VERSION, api: dict[str, Any] | None = None, **settings: Any
) -> Recorder:
    """The stack with three servers in the lab and these machines."""
    kubernetes = {
        "source": "rke2",
        "version": version,
        "artifacts": {"source": "download", "checksum": "a" * 64},
        "servers": [{"name": "cp-1"}, {"name": "cp-2"}, {"name": "cp-3"}],
        "registration-address": "10.20.0.100",
        **settings,
    }
    keys = document(kubernetes, agents)
    keys["caas"]["api"] = api or {}
    return declared(keys, preview=True)


def document(kubernetes: dict[str, Any], agents: Sequence[str]) -> dict[str, Any]:
    """Keys of a stack file."""
    section = {
        "name": "dev",
        "platform": "supermicro-hgx-h100",
        "hosts": {"source": "lab"},
        "kubernetes": kubernetes,
        "nodes": [{"name": name} for name in agents],
        "partition-layout": [4, 2, 1, 1],
        "tenants": [],
    }
    return {"cluster-type": "caas", "caas": section}


def nodes(recorder: Recorder) -> dict[str, dict[str, Any]]:
    """Inputs of the hosts' RKE2, by resource name."""
    return recorder.of(":Rke2Node")


def cilium(recorder: Recorder) -> dict[str, Any]:
    """The values that its chart is given."""
    text = nodes(recorder)["cp-1-rke2"]["files"][host_config.CILIUM_FILE]
    values: dict[str, Any] = yaml.safe_load(yaml.safe_load(text)["spec"]["valuesContent"])
    return values


def known(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs but for what a preview without a lab does not know: how to get there, and tokens."""
    out = {key: value for key, value in inputs.items() if key not in ("token", "agent_token")}
    out["connection"] = inputs["connection"]["host"]
    out["control"] = [one["host"] for one in inputs["control"]]
    return out


def test_every_host_is_one_resource_of_the_cluster() -> None:
    found = nodes(stack("hgx-01", "hgx-02"))
    assert {name: (one["role"], one["first"]) for name, one in found.items()} == {
        "cp-1-rke2": ("server", True),
        "cp-2-rke2": ("server", False),
        "cp-3-rke2": ("server", False),
        "hgx-01-rke2": ("agent", False),
        "hgx-02-rke2": ("agent", False),
    }
    assert [one["host"] for one in found["cp-2-rke2"]["control"]] == ["cp-1", "cp-3"]
    assert [one["host"] for one in found["hgx-01-rke2"]["control"]] == ["cp-1", "cp-2", "cp-3"]
    assert "agent_token" not in found["hgx-01-rke2"]


def test_cilium_is_told_what_the_configuration_says_and_serves_an_ingress_that_needs_it() -> None:
    values = cilium(stack("hgx-01"))
    assert values["kubeProxyReplacement"] is True
    assert values["socketLB"]["hostNamespaceOnly"] is True
    assert "ingressController" not in values
    certificate = {"source": "cert-manager", "issuer": "letsencrypt"}
    exposure = {"kind": "ingress", "host": "api.example.com", "certificate": certificate}
    made = stack("hgx-01", api={"exposure": {**exposure, "ingress-class": "cilium"}})
    assert cilium(made)["ingressController"] == {"enabled": True}


def test_kubelet_and_containerd_are_told_through_rke2_and_by_nobody_else() -> None:
    recorder = stack("hgx-01")
    files = nodes(recorder)["hgx-01-rke2"]["files"]
    assert "runtimeRequestTimeout" in files[releases.KUBELET_DROP_IN]
    assert "version = 3" in files[releases.CONTAINERD_DROP_IN]
    assert "hgx-01-reload-runtime" not in {one.name for one in recorder.seen}
    assert not {"hgx-01-kubelet", "hgx-01-containerd"} & {one.name for one in recorder.seen}


def test_another_release_changes_hosts_in_place_and_nothing_else() -> None:
    before, after = nodes(stack("hgx-01")), nodes(stack("hgx-01", version="v1.36.3+rke2r1"))
    for name, inputs in before.items():
        one, other = known(inputs), known(after[name])
        changed = {key for key in one if one[key] != other[key]}
        assert changed == {"version"}


def test_a_machine_that_goes_changes_no_other() -> None:
    before, after = nodes(stack("hgx-01", "hgx-02", "hgx-03")), nodes(stack("hgx-01", "hgx-03"))
    assert set(before) - set(after) == {"hgx-02-rke2"}
    assert all(known(before[name]) == known(inputs) for name, inputs in after.items())


def test_proxies_reach_the_units() -> None:
    found = nodes(stack("hgx-01", environment={"HTTPS_PROXY": "http://proxy.example.com:3128"}))
    assert "HTTPS_PROXY=http://proxy" in found["cp-1-rke2"]["files"]["/etc/default/rke2-server"]
    assert "HTTPS_PROXY=http://proxy" in found["hgx-01-rke2"]["files"]["/etc/default/rke2-agent"]
