"""What 1.0 has published: types in users' state, and codes that they search for and alert on."""

from importlib import import_module
from pathlib import Path

import pytest
from pulumi.dynamic import ResourceProvider

from gpuclusters.core import codes
from gpuclusters.providers.resource import Resource
from gpuclusters.providers.server import PROVIDERS

TYPES = {
    "CdiSpec", "FabricPartitions", "FirstLogin", "FleetPreflight", "GcpMachine", "GcpQuota", "GpuDriver",
    "GpuOperatorCrds", "GpuOperatorPreflight", "GpuReadiness", "HostBoot", "HostFile",
    "MigLayout", "NodeMaintenance", "OnDemandTenancies", "PluginGate", "Preflight", "ProofRun",
    "Rke2Node", "Rke2Tokens",
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


def test_codes_that_were_published_are_still_there() -> None:
    published = Path(__file__).with_name("codes.txt").read_text().split()
    assert not set(published) - set(codes.listed()), "codes are never renamed or taken away"
