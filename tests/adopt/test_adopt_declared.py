"""What `adopt` and `protect` of a configuration become in the resources of a stack."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.adopt.guide import DOCS
from tests.stacks import declaring, test_declared
from tests.stacks.declaring import declared


def keys(stack: str, section: str, **more: Any) -> dict[str, Any]:
    document = yaml.safe_load((DOCS.parent / f"Pulumi.{stack}.yaml").read_text())["config"]
    found = {
        key.removeprefix("gpu-clusters:"): value
        for key, value in document.items()
        if not (isinstance(value, dict) and "secure" in value)
    }
    return {"cluster-type": section, section: {**found[section], **more}}


def adopted(stack: str, section: str, **more: Any) -> set[str]:
    engine = declared(keys(stack, section, **more), preview=True)
    return {resource.name for resource in engine.seen if resource.inputs.get("adopt") is True}


def test_machines_and_tenants_are_taken_over_by_name() -> None:
    document = keys("dev", "caas")["caas"]
    machine, tenant = document["nodes"][0]["name"], document["tenants"][0]["name"]
    named = adopted("dev", "caas", adopt={"machines": [machine], "tenants": [tenant]})
    parts = {"boot", "vfio", "cdi", "service-vm", "fabric", "kubelet", "containerd"}
    assert named == {f"{machine}-{part}" for part in parts} | {f"{tenant}-policy"}

    document = keys("rke2-a100", "rke2")["rke2"]
    server, node = document["servers"][0], document["pools"][0]["nodes"][0]
    named = adopted("rke2-a100", "rke2", adopt={"machines": [server, node]})
    assert {f"{server}-rke2", f"{node}-rke2", f"{node}-driver"} <= named
    assert {name.rpartition("-")[0] for name in named} <= {server, node}


def test_an_rke2_below_a_caas_cluster_is_joined_with_its_own_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"gpu-clusters:server-token": "s" * 32, "gpu-clusters:agent-token": "a" * 32}
    for key, value in own.items():
        monkeypatch.setitem(declaring.SECRETS, key, value)
    # The cluster is made here: there is no kubeconfig that somebody would have to give.
    monkeypatch.delitem(declaring.SECRETS, "gpu-clusters:kubeconfig")
    machines = {"adopt": {"machines": ["cp-1", "hgx-01"]}}
    kubernetes = {"servers": [{"name": "cp-1"}], "registration-address": None}
    case = {"base": "own cluster", "caas": machines | {"kubernetes": kubernetes}}
    engine = test_declared.declared(case)
    nodes = engine.of(":Rke2Node")
    assert {name: one["token"] for name, one in nodes.items()} == {
        "cp-1-rke2": "s" * 32,
        "hgx-01-rke2": "a" * 32,
    }
    assert all(one["adopt"] for one in nodes.values())
    assert engine.of("Rke2Tokens") == {}
