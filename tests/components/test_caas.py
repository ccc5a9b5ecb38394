"""What the components of a caas cluster declare, without an engine."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from components.caas.gpu_host import GpuHost, GpuHostArgs
from components.caas.kata_runtime import KataRuntime, KataRuntimeArgs
from components.caas.tenancy_api import TenancyApi, TenancyApiArgs
from components.caas.tenant import Tenant, TenantArgs
from components.host_connection import HostConnection
from gpuclusters.domain import admission_policy, isolation, tenancy_resource
from tests.components.recorder import record

CONNECTION = HostConnection(
    host="hgx-01", address="192.0.2.1", port=22, user="ops", host_key="ssh-ed25519 AAAA"
)


def host_args(**changes: Any) -> GpuHostArgs:
    values: dict[str, Any] = {
        "connection": CONNECTION,
        "private_key": None,
        "baseboard": "hgx-h100",
        "gpus": {n: f"0000:0{n}:00.0" for n in range(1, 9)},
        "partitions": [1, 2],
        "fabric_manager_host": "192.168.250.2",
        "cdi_kind": "nvidia.com/pgpu",
        "kubelet_drop_in": "kubelet",
        "containerd_drop_in": "containerd",
    }
    return GpuHostArgs(**{**values, **changes})


def tenant_args(**changes: Any) -> TenantArgs:
    values: dict[str, Any] = {
        "cluster": "test",
        "kubeconfig": "kubeconfig",
        "tenant": "acme",
        "namespace": "tenant-acme",
        "tenancy": {"gpus": 4, "quota": {"hard": {"requests.nvidia.com/pgpu": "4"}}},
        "requires": [],
    }
    return TenantArgs(**{**values, **changes})


@pytest.fixture(params=[False, True], ids=["up", "preview"])
def preview(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_host_has_one_resource_of_each_kind_however_many_gpus_it_has(preview: bool) -> None:
    engine = record(lambda: GpuHost("hgx-01", host_args()), preview=preview)
    assert engine.types() == [
        "command:remote:Command",
        "gpu-clusters:caas:GpuHost",
        "pulumi-python:dynamic/gpu:CdiSpec",
        "pulumi-python:dynamic/gpu:FabricPartitions",
        "pulumi-python:dynamic/gpu:HostFile",
        "pulumi-python:dynamic/gpu:HostFile",
    ]
    (spec,) = engine.of("CdiSpec").values()
    assert [device["name"] for device in spec["devices"]] == [str(n) for n in range(1, 9)]
    assert spec["path"] == "/etc/cdi/nvidia.com-pgpu.json"


def test_no_command_runs_on_a_host_that_cannot_prove_who_it_is(preview: bool) -> None:
    engine = record(lambda: GpuHost("hgx-01", host_args()), preview=preview)
    (command,) = engine.of("remote:Command").values()
    assert command["connection"]["hostKey"] == "ssh-ed25519 AAAA"
    assert "reload" not in command["create"], "the script travels on stdin, not in the command"
    assert command["stdin"].startswith("#!/bin/sh")


def test_the_private_key_reaches_no_resource_but_the_command() -> None:
    engine = record(lambda: GpuHost("hgx-01", host_args(private_key="THE-KEY")))
    holders = [r.type for r in engine.seen if "THE-KEY" in str(r.inputs)]
    assert holders == ["command:remote:Command"]


def test_a_runtime_class_states_what_a_vm_costs(preview: bool) -> None:
    args = KataRuntimeArgs(
        runtime_class="kata-qemu-nvidia-gpu",
        overhead_cpu="1000m",
        overhead_memory="10240Mi",
        node_selector={"nvidia.com/cc.ready.state": "false"},
    )
    engine = record(lambda: KataRuntime("kata", args), preview=preview)
    (made,) = engine.of(":RuntimeClass").values()
    assert made["handler"] == made["metadata"]["name"] == "kata-qemu-nvidia-gpu"
    assert made["overhead"]["podFixed"] == {"cpu": "1000m", "memory": "10240Mi"}
    assert made["scheduling"]["nodeSelector"] == {"nvidia.com/cc.ready.state": "false"}


def test_the_tenancy_api_binds_its_rules_to_every_tenant(preview: bool) -> None:
    args = TenancyApiArgs(
        custom_resource_definitions=[tenancy_resource.crd()],
        runtime_classes=["kata-qemu-nvidia-gpu"],
        runtime_selector=[],
        gpu_resource="nvidia.com/pgpu",
        network=isolation.Network(),
        controllers="system:serviceaccount:gpu-clusters-system:controllers",
    )
    engine = record(lambda: TenancyApi("tenancy", args), preview=preview)
    bindings = engine.of(":ValidatingAdmissionPolicyBinding").values()
    assert {binding["spec"]["policyName"] for binding in bindings} == {
        admission_policy.POD_POLICY,
        admission_policy.SERVICE_POLICY,
    }
    for binding in bindings:
        assert binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] == [
            {"key": isolation.TENANT_LABEL, "operator": "Exists"}
        ]
        assert binding["spec"]["validationActions"] == ["Deny", "Audit"]
    assert len(engine.of(":CustomResourceDefinition")) == 1
    assert len(engine.of(":CiliumClusterwideNetworkPolicy")) == 1


def test_a_tenant_is_its_tenancy_and_the_proof_that_it_holds(preview: bool) -> None:
    engine = record(lambda: Tenant("acme", tenant_args()), preview=preview)
    assert [t.rsplit(":", 1)[-1] for t in engine.types()] == ["Tenant", "TenancyPolicy"]
    (proof,) = engine.of("TenancyPolicy").values()
    assert proof["namespace"] == "tenant-acme"
    assert proof["spec"]["quota"]["hard"] == {"requests.nvidia.com/pgpu": "4"}


def test_the_kubeconfig_is_a_secret_wherever_it_goes() -> None:
    secret: list[bool] = []

    def declare() -> object:
        tenant = Tenant("acme", tenant_args(kubeconfig=pulumi.Output.secret("kubeconfig")))
        return pulumi.Output.all(tenant.ready, tenant.namespace).apply(
            lambda _: secret.append(True)
        )

    engine = record(declare)
    assert secret == [True]
    assert [r.name for r in engine.seen if "kubeconfig" in r.inputs] == ["acme-policy"]
