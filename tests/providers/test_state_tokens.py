"""What stands in users' state: the type of each resource, and who keeps it."""

from __future__ import annotations

from importlib import import_module

import pytest
from pulumi.dynamic import ResourceProvider

from gpuclusters.providers.resource import Resource
from gpuclusters.providers.server import PROVIDERS

TYPES = {
    "CdiSpec", "FabricPartitions", "FirstLogin", "FleetPreflight", "GcpMachine", "GcpQuota", "GpuDriver",
    "GpuOperatorCrds", "GpuOperatorPreflight", "GpuReadiness", "HostBoot", "HostFile",
    "MigLayout", "NodeMaintenance", "PluginGate", "Preflight", "ProofRun", "Rke2Node", "Rke2Tokens",
    "RootlessHost", "ServiceVm", "SshHostKey", "TenancyPolicy", "TrainingProof", "UsernetesNode",
    "VfioBinding",
}  # fmt: skip


def test_the_types_are_those_that_were_published() -> None:
    assert set(PROVIDERS) == TYPES


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_each_type_has_its_resource_and_its_provider(name: str) -> None:
    path, _, kind = PROVIDERS[name].partition(":")
    module = import_module(path)
    resource = getattr(module, name)
    assert issubclass(resource, Resource)
    assert resource.type_token == f"gpu-clusters:gpu:{name}"
    assert issubclass(getattr(module, kind), ResourceProvider)
