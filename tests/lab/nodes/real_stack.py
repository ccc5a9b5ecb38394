"""The development stack's lab with real nodes, and the programs of a caas cluster in it.

One node is an HGX host. The controllers and the API run on the other one, and live on when that host is lost.

Everything that the lab starts is what `lab start` starts; what the stack would declare is taken from its
components and applied with kubectl, which is a minute faster than an engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.caas.programs import Programs
from components.caas.system import System
from components.caas.tenancy import TenancyApi
from gpuclusters.cdi import model as cdi
from gpuclusters.cdi.resource import CdiSpecProvider
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.inventory import Inventory, ResolvedHost, read_inventory
from gpuclusters.config.plan import plan
from gpuclusters.config.programs import LAB_IMAGE, settings_file
from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.lease import model as lease_resource
from gpuclusters.tenancy import isolation
from gpuclusters.tenancy import model as tenancy_resource
from gpuclusters.tenancy.programs import Program
from lab import issuer, lifecycle, nodes, tools
from lab.control_plane import NodeSpec
from lab.hosts import HostSpec
from lab.hosts.folder import HostFolder, HostsFolder
from lab.nodes import Kind
from lab.spec import LabSpec
from stacks import kata
from tests.components.recorder import record
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import RealLab, called

NODE = "hgx-01"
BESIDE = "services-01"
"""Without GPUs, and without a simulated host under it."""
_CONFIG = CaasConfig.model_validate(
    {
        "name": "test",
        "platform": "supermicro-hgx-h100",
        "hosts": {"source": "lab"},
        "kubernetes": {"source": "lab"},
        "nodes": [{"name": NODE}],
        "partition-layout": "by-lease",
        "tenants": [{"name": "acme", "gpus": 4}],
        "programs": {"replicas": 1},
        # The node has what this machine has, which is less than an HGX host.
        "kata": {"overhead": {"cpu-millicores": 10, "memory-mib": 10}},
    }
)
ACCOUNTS = _CONFIG.programs.accounts
RESOURCE = _CONFIG.device_access.resource_name
PLAN = plan(_CONFIG)
GPUS = dict(sorted(PLAN.nodes[0].board.gpus.items()))


@dataclass(frozen=True, slots=True)
class RealStack(RealLab):
    """The cluster with its programs, and the API as a tenant calls it, at a port of this machine."""

    port: int = 0

    @property
    def host(self) -> HostFolder:
        """The simulated host under the node."""
        return HostsFolder(self.cluster.folder / "hosts").host(NODE)

    def bearer(self, who: str) -> str:
        """A tenant's token."""
        return issuer.token(self.cluster.folder / "issuer", who)

    def call(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        """Call the API as a tenant."""
        api = ContainerApi(f"http://127.0.0.1:{self.port}")
        return api.call(method, path, self.bearer(who), body)

    def create(self, manifest: Mapping[str, Any], *words: str) -> str:
        """Why an object is not taken; empty if it is."""
        given = json.dumps(manifest)
        done = called([*self.client, *(words or ("create",)), "-f", "-"], given)
        return done.stderr if done.returncode else ""

    def declared(self, manifest: Mapping[str, Any]) -> None:
        """Create it; a custom resource has to wait until its kind is served."""
        apply = ("apply", "--server-side", "--force-conflicts")
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        eventually(lambda: self.create(manifest, *apply) == "", f"{name} is taken")

    def rolled_out(self, program: Program) -> bool:
        """Whether all of its pods are ready."""
        kind = "daemonsets" if program is Program.DEVICE_PLUGIN else "deployments"
        home = f"/apis/apps/v1/namespaces/{ACCOUNTS.namespace(program)}"
        status = self.got(f"{home}/{kind}/{program}")["status"]
        return 1 in (status.get("readyReplicas"), status.get("numberReady"))

    def leases(self) -> list[dict[str, Any]]:
        """Status of each GPU's lease, with its `module`."""
        items = self.got("/apis/gpu-clusters.dev/v1alpha1/gpuleases")["items"]
        return [{**lease.get("status", {}), "module": lease["spec"]["module"]} for lease in items]

    def all_free(self) -> None:
        """Wait until the next tenant may have any GPU."""
        free = ["Free"] * len(GPUS)
        eventually(lambda: [one.get("phase") for one in self.leases()] == free, "all GPUs are free")


@contextmanager
def real_stack(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealStack]:
    """The lab with its programs, gone afterwards; skips, with the reason, where a program cannot be had."""
    own = nodes.OWN_CAPACITY
    spec = LabSpec(
        name=_CONFIG.name,
        hosts=(HostSpec(NODE, _CONFIG.platform.value),),
        nodes=(NodeSpec(NODE, kata.node_labels(_CONFIG), own, own), NodeSpec(BESIDE, {}, own, own)),
        image=LAB_IMAGE,
        kind=Kind.REAL,
        real=frozenset({NODE, BESIDE}),
    )
    tools.ensure(["kubectl"])
    try:
        lifecycle.start(folder, spec, print)
        inventory = read_inventory(folder)
        assert inventory is not None
        monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(inventory.ssh_private_key))
        write_cdi(inventory.hosts[NODE])
        port = nodes.entrance(folder / "nodes", ACCOUNTS.namespace(Program.API), "api", 80)
        cluster = KubeCluster(folder, inventory.kubeconfig, "")
        stack = RealStack(folder / "nodes", cluster, (NODE, BESIDE), port=port)
        # Without kata-deploy no pod with this runtime class is placed.
        for manifest in [*beside(__file__, "kata_deploy.yaml"), *manifests(inventory)]:
            stack.declared(manifest)
        for program in Program:
            eventually(lambda p=program: stack.rolled_out(p), f"{program} is ready")
        yield stack
    finally:
        lifecycle.remove(folder, print)


def connection(host: ResolvedHost) -> dict[str, Any]:
    """How it is reached by SSH."""
    return host.model_dump(include={"address", "port", "user", "host_key"})


def write_cdi(host: ResolvedHost) -> None:
    """Have `CdiSpec` write its file on the host, over SSH: containerd of the node reads it there."""
    CdiSpecProvider().create(
        {
            "connection": connection(host) | {"host": host.name},
            "path": cdi.spec_path(RESOURCE, cdi.VfioBackend.LEGACY),
            "kind": RESOURCE,
            "devices": [{"name": str(module), "pci_address": pci} for module, pci in GPUS.items()],
        }
    )


def manifests(inventory: Inventory) -> list[dict[str, Any]]:
    """What the stack declares of a caas cluster's programs and rules, in order.

    The scheduler may put Deployments anywhere; here they must not be on the node that will be lost.
    """

    bmc, keys = inventory.hosts[NODE].bmc, inventory.issuer_keys
    assert bmc is not None
    assert keys is not None

    def declare() -> None:
        secrets = {
            "ssh-private-key": inventory.ssh_private_key.read_text(),
            "bmc-password": inventory.bmc_password.read_text(),
        }
        text = settings_file(
            _CONFIG,
            PLAN,
            hosts={NODE: connection(inventory.hosts[NODE]) | {"bmc": bmc.model_dump(mode="json")}},
            issuer=inventory.issuer,
            issuer_keys=keys.model_dump(mode="json"),
            golden_firmware=inventory.golden_firmware,
        )
        system = System("system", accounts=ACCOUNTS, settings=text, secrets=secrets)
        kata.runtime(_CONFIG)
        TenancyApi(
            "tenancy",
            custom_resource_definitions=[tenancy_resource.crd(), lease_resource.crd()],
            runtime_classes=[_CONFIG.kata.runtime_class],
            runtime_selector=sorted(_CONFIG.kata.node_selector),
            gpu_resource=RESOURCE,
            huge_pages=_CONFIG.kata.huge_pages,
            network=isolation.Network(),
            controllers=ACCOUNTS.user(Program.CONTROLLERS),
        )
        Programs("programs", image=LAB_IMAGE, replicas=1, nodes=[NODE], system=system)

    made = [json.loads(json.dumps(one.inputs)) for one in record(declare).seen]
    found = [one for one in made if "apiVersion" in one and "kind" in one]
    for one in found:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": BESIDE}
    return found
