"""What is written into users' state: changing any of it makes their state unloadable."""

from __future__ import annotations

import base64

import pytest
from pulumi.dynamic import Resource, ResourceProvider
from pulumi.dynamic.dynamic import serialize_provider

from gpuclusters.providers.cdi_spec import CdiSpec, CdiSpecProvider
from gpuclusters.providers.fabric_partitions import FabricPartitions, FabricPartitionsProvider
from gpuclusters.providers.first_login import FirstLogin, FirstLoginProvider
from gpuclusters.providers.fleet_preflight import FleetPreflight, FleetPreflightProvider
from gpuclusters.providers.gcp_machine import GcpMachine, GcpMachineProvider
from gpuclusters.providers.gcp_quota import GcpQuota, GcpQuotaProvider
from gpuclusters.providers.gpu_driver import GpuDriver, GpuDriverProvider
from gpuclusters.providers.gpu_operator_crds import GpuOperatorCrds, GpuOperatorCrdsProvider
from gpuclusters.providers.gpu_operator_preflight import (
    GpuOperatorPreflight,
    GpuOperatorPreflightProvider,
)
from gpuclusters.providers.gpu_readiness import GpuReadiness, GpuReadinessProvider
from gpuclusters.providers.host_boot import HostBoot, HostBootProvider
from gpuclusters.providers.host_file import HostFile, HostFileProvider
from gpuclusters.providers.host_unit import HostUnit, HostUnitProvider
from gpuclusters.providers.mig_layout import MigLayout, MigLayoutProvider
from gpuclusters.providers.node_maintenance import NodeMaintenance, NodeMaintenanceProvider
from gpuclusters.providers.plugin_gate import PluginGate, PluginGateProvider
from gpuclusters.providers.preflight import Preflight, PreflightProvider
from gpuclusters.providers.proof_run import ProofRun, ProofRunProvider
from gpuclusters.providers.rke2_node import Rke2Node, Rke2NodeProvider
from gpuclusters.providers.rke2_tokens import Rke2Tokens, Rke2TokensProvider
from gpuclusters.providers.rootless_host import RootlessHost, RootlessHostProvider
from gpuclusters.providers.service_vm import ServiceVm, ServiceVmProvider
from gpuclusters.providers.ssh_host_key import SshHostKey, SshHostKeyProvider
from gpuclusters.providers.tenancy_policy import TenancyPolicy, TenancyPolicyProvider
from gpuclusters.providers.training_proof import TrainingProof, TrainingProofProvider
from gpuclusters.providers.usernetes_node import UsernetesNode, UsernetesNodeProvider
from gpuclusters.vfio.resource import VfioBinding, VfioBindingProvider

GOLDEN = {
    CdiSpecProvider: ("gpuclusters.providers.cdi_spec", "CdiSpecProvider"),
    FabricPartitionsProvider: (
        "gpuclusters.providers.fabric_partitions",
        "FabricPartitionsProvider",
    ),
    FleetPreflightProvider: (
        "gpuclusters.providers.fleet_preflight",
        "FleetPreflightProvider",
    ),
    GpuOperatorCrdsProvider: ("gpuclusters.providers.gpu_operator_crds", "GpuOperatorCrdsProvider"),
    GpuOperatorPreflightProvider: (
        "gpuclusters.providers.gpu_operator_preflight",
        "GpuOperatorPreflightProvider",
    ),
    GpuReadinessProvider: ("gpuclusters.providers.gpu_readiness", "GpuReadinessProvider"),
    MigLayoutProvider: ("gpuclusters.providers.mig_layout", "MigLayoutProvider"),
    FirstLoginProvider: ("gpuclusters.providers.first_login", "FirstLoginProvider"),
    GcpMachineProvider: ("gpuclusters.providers.gcp_machine", "GcpMachineProvider"),
    GcpQuotaProvider: ("gpuclusters.providers.gcp_quota", "GcpQuotaProvider"),
    SshHostKeyProvider: ("gpuclusters.providers.ssh_host_key", "SshHostKeyProvider"),
    GpuDriverProvider: ("gpuclusters.providers.gpu_driver", "GpuDriverProvider"),
    HostBootProvider: ("gpuclusters.providers.host_boot", "HostBootProvider"),
    HostUnitProvider: ("gpuclusters.providers.host_unit", "HostUnitProvider"),
    VfioBindingProvider: ("gpuclusters.vfio.resource", "VfioBindingProvider"),
    HostFileProvider: ("gpuclusters.providers.host_file", "HostFileProvider"),
    NodeMaintenanceProvider: (
        "gpuclusters.providers.node_maintenance",
        "NodeMaintenanceProvider",
    ),
    PreflightProvider: ("gpuclusters.providers.preflight", "PreflightProvider"),
    ServiceVmProvider: ("gpuclusters.providers.service_vm", "ServiceVmProvider"),
    PluginGateProvider: ("gpuclusters.providers.plugin_gate", "PluginGateProvider"),
    TrainingProofProvider: ("gpuclusters.providers.training_proof", "TrainingProofProvider"),
    ProofRunProvider: ("gpuclusters.providers.proof_run", "ProofRunProvider"),
    Rke2NodeProvider: ("gpuclusters.providers.rke2_node", "Rke2NodeProvider"),
    Rke2TokensProvider: ("gpuclusters.providers.rke2_tokens", "Rke2TokensProvider"),
    RootlessHostProvider: ("gpuclusters.providers.rootless_host", "RootlessHostProvider"),
    TenancyPolicyProvider: ("gpuclusters.providers.tenancy_policy", "TenancyPolicyProvider"),
    UsernetesNodeProvider: ("gpuclusters.providers.usernetes_node", "UsernetesNodeProvider"),
}


def pickled(module: str, name: str) -> bytes:
    """The pickle of an instance without attributes: module and class by name, nothing else."""
    words = b"".join(b"\x8c" + bytes([len(w)]) + w.encode() + b"\x94" for w in (module, name))
    body = words + b"\x93\x94)\x81\x94."
    return b"\x80\x04\x95" + len(body).to_bytes(8, "little") + body


@pytest.mark.parametrize("provider", GOLDEN, ids=lambda p: p.__name__)
def test_the_state_token_of_a_provider_never_changes(provider: type[ResourceProvider]) -> None:
    raw = base64.b64decode(serialize_provider(provider()))
    assert raw == pickled(*GOLDEN[provider]), (
        "this string is in users' state: keep a module with the old name instead of renaming"
    )
    assert len(raw) < 100


@pytest.mark.parametrize(
    ("resource", "token"),
    [
        (CdiSpec, "dynamic/gpu:CdiSpec"),
        (FabricPartitions, "dynamic/gpu:FabricPartitions"),
        (FleetPreflight, "dynamic/gpu:FleetPreflight"),
        (GpuOperatorCrds, "dynamic/gpu:GpuOperatorCrds"),
        (GpuOperatorPreflight, "dynamic/gpu:GpuOperatorPreflight"),
        (GpuReadiness, "dynamic/gpu:GpuReadiness"),
        (MigLayout, "dynamic/gpu:MigLayout"),
        (FirstLogin, "dynamic/gpu:FirstLogin"),
        (GcpMachine, "dynamic/gpu:GcpMachine"),
        (GcpQuota, "dynamic/gpu:GcpQuota"),
        (SshHostKey, "dynamic/gpu:SshHostKey"),
        (GpuDriver, "dynamic/gpu:GpuDriver"),
        (HostBoot, "dynamic/gpu:HostBoot"),
        (HostFile, "dynamic/gpu:HostFile"),
        (HostUnit, "dynamic/gpu:HostUnit"),
        (VfioBinding, "dynamic/gpu:VfioBinding"),
        (NodeMaintenance, "dynamic/gpu:NodeMaintenance"),
        (Preflight, "dynamic/gpu:Preflight"),
        (ServiceVm, "dynamic/gpu:ServiceVm"),
        (ProofRun, "dynamic/gpu:ProofRun"),
        (PluginGate, "dynamic/gpu:PluginGate"),
        (TrainingProof, "dynamic/gpu:TrainingProof"),
        (Rke2Node, "dynamic/gpu:Rke2Node"),
        (Rke2Tokens, "dynamic/gpu:Rke2Tokens"),
        (RootlessHost, "dynamic/gpu:RootlessHost"),
        (TenancyPolicy, "dynamic/gpu:TenancyPolicy"),
        (UsernetesNode, "dynamic/gpu:UsernetesNode"),
    ],
)
def test_the_type_token_of_a_resource_never_changes(resource: type[Resource], token: str) -> None:
    assert resource._resource_type_name == token


@pytest.mark.parametrize("provider", GOLDEN, ids=lambda p: p.__name__)
def test_the_state_token_stays_readable(provider: type[ResourceProvider]) -> None:
    assert provider().serialize_as_secret_always is False
