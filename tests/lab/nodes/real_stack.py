"""The development stack's lab with real nodes, and the programs of a caas cluster in it.

One node is an HGX host. The controllers and the API run on the other one, and live on when that host is lost.

Everything that the lab starts is what `lab start` starts; what the stack would declare is taken from its
components and applied with kubectl, which is a minute faster than an engine.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
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
from lab.kubelet.kata_installer import IMAGE as KATA_DEPLOY
from lab.nodes import Kind
from lab.spec import LabSpec
from stacks import kata
from tests.components.recorder import record
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import called, patient_get, run_in

NODE = "hgx-01"
BESIDE = "services-01"
"""Without GPUs, and without a simulated host under it."""
SYSTEM = "gpu-clusters-system"
"""Namespace of the API."""
CONTROLLERS = "gpu-clusters-controllers"
"""That of the controllers."""
PATIENCE = 300.0
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
RESOURCE = _CONFIG.device_access.resource_name
PLAN = plan(_CONFIG)
GPUS = dict(sorted(PLAN.nodes[0].board.gpus.items()))


@dataclass(frozen=True)
class RealStack:
    """The cluster with its programs, and the API as a tenant calls it."""

    folder: Path
    inventory: Inventory
    client: tuple[str, ...]
    """kubectl as administrator."""
    port: int
    """Of the API, on this machine."""

    @property
    def nodes(self) -> Path:
        """The folder of the real nodes."""
        return self.folder / "nodes"

    @property
    def host(self) -> HostFolder:
        """The simulated host under the node."""
        return HostsFolder(self.folder / "hosts").host(NODE)

    def token(self, who: str) -> str:
        """A tenant's."""
        return issuer.token(self.folder / "issuer", who)

    def call(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        """Call the API as a tenant."""
        api = ContainerApi(f"http://127.0.0.1:{self.port}")
        return api.call(method, path, self.token(who), body)

    def kubectl(self, *arguments: str, given: Any = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; `given` is an object for its input."""
        return called([*self.client, *arguments], json.dumps(given) if given is not None else None)

    def found(self, path: str) -> dict[str, Any]:
        """An object, or a list of them, as the API server has it.

        What is looked at again and again: a kubectl each time takes more of the machine than the node.
        """
        return patient_get(KubeCluster(self.folder, self.inventory.kubeconfig, ""), path)

    def run_in(self, namespace: str, pod: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod's container, as soon as it can be reached."""
        return run_in(self.client, namespace, pod, *command)

    def declared(self, manifest: dict[str, Any]) -> None:
        """Create it; a custom resource has to wait until its kind is served."""
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        command = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        eventually(
            lambda: self.kubectl(*command, given=manifest).returncode == 0, f"{name} is taken"
        )

    def rolled_out(self, kind: str, program: Program) -> bool:
        """Whether all of its pods are ready."""
        home = _CONFIG.programs.accounts.namespace(program)
        status = self.found(f"/apis/apps/v1/namespaces/{home}/{kind}/{program}")["status"]
        return 1 in (status.get("readyReplicas"), status.get("numberReady"))

    def node(self) -> dict[str, Any]:
        """The Node, by the types of its conditions, and its labels."""
        body = self.found(f"/api/v1/nodes/{NODE}")
        conditions = {c["type"]: c["status"] for c in body["status"]["conditions"]}
        return {"labels": body["metadata"]["labels"], "conditions": conditions}

    def leases(self) -> list[dict[str, Any]]:
        """Status of each GPU's lease, with its `module`."""
        items = self.found("/apis/gpu-clusters.dev/v1alpha1/gpuleases")["items"]
        return [{**lease.get("status", {}), "module": lease["spec"]["module"]} for lease in items]

    def phases(self) -> list[str]:
        """The phase of each GPU."""
        return sorted(lease.get("phase", "") for lease in self.leases())


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
    try:
        kubectl = tools.ensure(["kubectl"])["kubectl"]
        lifecycle.start(folder, spec, print)
        inventory = read_inventory(folder)
        assert inventory is not None
        monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(inventory.ssh_private_key))
        write_cdi(inventory.hosts[NODE])
        client = (str(kubectl), f"--kubeconfig={inventory.kubeconfig}")
        port = nodes.entrance(folder / "nodes", SYSTEM, "api", 80)
        stack = RealStack(folder, inventory, client, port)
        for manifest in [*installer(), *manifests(inventory)]:
            stack.declared(manifest)
        for program in Program:
            kind = "daemonsets" if program is Program.DEVICE_PLUGIN else "deployments"
            eventually(
                lambda kind=kind, program=program: stack.rolled_out(kind, program),
                f"{program} is ready",
            )
        yield stack
    finally:
        lifecycle.remove(folder, print)


def write_cdi(host: ResolvedHost) -> None:
    """Have `CdiSpec` write its file on the host, over SSH: containerd of the node reads it there."""
    connection = {
        "host": host.name, "address": host.address, "port": host.port, "user": host.user,
        "host_key": host.host_key,
    }  # fmt: skip
    CdiSpecProvider().create(
        {
            "connection": connection,
            "path": cdi.spec_path(RESOURCE, cdi.VfioBackend.LEGACY),
            "kind": RESOURCE,
            "devices": [{"name": str(module), "pci_address": pci} for module, pci in GPUS.items()],
        }
    )


def configured(inventory: Inventory) -> str:
    """What the programs are told, as the stack tells it."""
    host = inventory.hosts[NODE]
    assert host.bmc is not None
    assert inventory.issuer_keys is not None
    machine = {
        "address": host.address, "port": host.port, "user": host.user, "host_key": host.host_key,
        "bmc": host.bmc.model_dump(mode="json"),
    }  # fmt: skip
    return settings_file(
        _CONFIG,
        PLAN,
        hosts={NODE: machine},
        issuer=inventory.issuer,
        issuer_keys=inventory.issuer_keys.model_dump(mode="json"),
        golden_firmware=inventory.golden_firmware,
    )


def manifests(inventory: Inventory) -> list[dict[str, Any]]:
    """What the stack declares of a caas cluster's programs and rules, in order.

    The scheduler may put Deployments anywhere; here they must not be on the node that will be lost.
    """

    def declare() -> None:
        secrets = {
            "ssh-private-key": inventory.ssh_private_key.read_text(),
            "bmc-password": inventory.bmc_password.read_text(),
        }
        accounts = _CONFIG.programs.accounts
        text = configured(inventory)
        system = System("system", accounts=accounts, settings=text, secrets=secrets)
        kata.runtime(_CONFIG)
        TenancyApi(
            "tenancy",
            custom_resource_definitions=[tenancy_resource.crd(), lease_resource.crd()],
            runtime_classes=[_CONFIG.kata.runtime_class],
            runtime_selector=sorted(_CONFIG.kata.node_selector),
            gpu_resource=RESOURCE,
            huge_pages=_CONFIG.kata.huge_pages,
            network=isolation.Network(),
            controllers=_CONFIG.programs.accounts.user(Program.CONTROLLERS),
        )
        Programs("programs", image=LAB_IMAGE, replicas=1, nodes=[NODE], system=system)

    made = [json.loads(json.dumps(one.inputs)) for one in record(declare).seen]
    found = [one for one in made if "apiVersion" in one and "kind" in one]
    for one in found:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": BESIDE}
    return found


def installer() -> list[dict[str, Any]]:
    """kata-deploy, as its chart in the lab has it: without it no pod with this runtime class is placed."""
    settings = {"suffix": "", "distribution": "k8s", "shims": [_CONFIG.kata.shim.value]}
    name = {"name": "kata-deploy", "namespace": "kube-system"}
    labels = {"app": "kata-deploy"}
    container = {
        "name": "kube-kata",
        "image": f"{KATA_DEPLOY}:4.1.0",
        "command": ["/usr/bin/kata-deploy", "install"],
    }
    volume = {"name": "custom-configs", "configMap": {"name": "kata-deploy-custom-configs"}}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "volumes": [volume]},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**name, "name": "kata-deploy-custom-configs"},
            "data": {"settings.json": json.dumps(settings)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": name,
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    ]
