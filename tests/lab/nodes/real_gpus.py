"""A real node with eight fake GPUs, our device plugin on it as we ship it, and leases moved by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from components.caas.programs import Programs
from components.caas.system import System
from gpuclusters.cdi import decide as cdi
from gpuclusters.cdi import model
from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.host.model import HostConnection, PciFunction
from gpuclusters.lease.model import GPULeaseSpec, crd, lease_object
from gpuclusters.tenancy.programs import Accounts, Program
from lab import nodes
from lab.control_plane.kube import KubeApi
from lab.nodes.configuration import KATA_HANDLER
from tests.components.recorder import Recorder, own_event_loop, record
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import RealLab, patient_get

IMAGE = "gpu-clusters/caas:lab"
RESOURCE = "nvidia.com/pgpu"
MODULES = range(1, 9)
TABLE = TABLES[Baseboard.HGX_H100]
_LEASES = "/apis/gpu-clusters.dev/v1alpha1/gpuleases"
_SINCE = "2026-11-21T10:00:00Z"
_MAJOR = 240
"""Of local use: no driver answers, so that opening says ENXIO where it is allowed and EPERM where not."""
_HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
_CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding")


def device(module: int) -> str:
    """The CDI name of a GPU, and its IOMMU group."""
    return str(10 + module)


def fake_devices() -> dict[str, tuple[int, int]]:
    """VFIO nodes of eight GPUs, each with a number of its own: that is what cgroups tell apart."""
    groups = {f"/dev/vfio/{device(module)}": (_MAJOR, 10 + module) for module in MODULES}
    return {"/dev/vfio/vfio": (_MAJOR, 0), **groups}


def cdi_spec() -> str:
    """The specification that our `CdiSpec` writes for such a host."""
    addresses = {module: f"0000:{module:02x}:00.0" for module in MODULES}
    inputs = model.CdiSpecInputs(
        connection=HostConnection(host="hgx", address="127.0.0.1", host_key=_HOST_KEY),
        path=model.spec_path(RESOURCE, model.VfioBackend.LEGACY),
        kind=RESOURCE,
        devices=tuple(
            model.CdiDevice(name=device(module), pci_address=address)
            for module, address in addresses.items()
        ),
    )
    found = {
        address: PciFunction(address, present=True, iommu_group=device(module), driver="vfio-pci")
        for module, address in addresses.items()
    }
    return cdi.render(inputs, found)


def settings(host: str) -> str:
    """What the programs are told."""
    gpus = [
        {"module": module, "pci": f"0000:{module:02x}:00.0", "device": device(module)}
        for module in MODULES
    ]
    described = {
        "name": host, "address": "127.0.0.1", "user": "u", "hostKey": "k", "baseboard": "hgx-h100",
        "gpus": gpus, "partitions": [p.id for p in TABLE.partitions], "fabricManager": "127.0.0.1",
    }  # fmt: skip
    api = {"issuer": "https://issuer.example"}
    return json.dumps(
        {"cluster": "test", "runtimeClass": KATA_HANDLER, "api": api, "hosts": [described]}
    )


@dataclass
class RealGpus:
    """The node, its leases, its tenants' namespace."""

    lab: RealLab
    api: KubeApi
    namespace: str
    system: str
    """Namespace of our programs."""

    @property
    def node(self) -> str:
        return self.lab.names[0]

    @property
    def runtime_class(self) -> str:
        """A class of our own: its name is known in the whole cluster."""
        return f"kata-{self.lab.token}"

    def lease(self, module: int) -> dict[str, Any]:
        return patient_get(self.lab.cluster, f"{_LEASES}/{self.node}-gpu{module}")

    def move(self, module: int, *phases: str, **more: Any) -> None:
        """Let a GPU go through phases, as the API server allows it."""
        for phase in phases:
            # The plugin writes too.
            eventually(
                lambda phase=phase: self._write(module, phase, more), f"GPU {module} is {phase}"
            )

    def _write(self, module: int, phase: str, more: Mapping[str, Any]) -> bool:
        lease = self.lease(module)
        status = {**lease.get("status", {"cycle": 1}), "phase": phase, "since": _SINCE, **more}
        if phase not in ("Reserved", "Activating", "Leased", "Releasing"):
            status.pop("holder", None)
        body = {**lease, "status": status}
        done, answer = self.api.request("PUT", f"{_LEASES}/{self.node}-gpu{module}/status", body)
        assert done in (200, 409), answer
        return done == 200

    def free(self, module: int, **more: Any) -> None:
        """Make a GPU one that the next tenant may have."""
        shown = [
            {"type": kind, "status": "True", "reason": "Done", "lastTransitionTime": _SINCE}
            for kind in ("ResetDone", "MemoryCleared")
        ]
        self.move(module, "Resetting", **more)
        self.move(module, "Scrubbing", "Verifying", "Free", conditions=shown)

    def give(self, pod: str, partition: int, **spec: Any) -> None:
        """Lease a partition to a new pod, as the lease controller does, and let the pod go."""
        modules = list(TABLE.partition(partition).modules)
        limits = {"limits": {RESOURCE: str(len(modules))}}
        gate = {"schedulingGates": [{"name": "gpu-clusters.dev/lease"}]}
        self.lab.pod(
            self.namespace, pod, "sleep 1000", container={"resources": limits},
            runtimeClassName=self.runtime_class, **gate, **spec,
        )  # fmt: skip
        holder = {
            "tenant": "a", "namespace": self.namespace, "pod": pod, "container": pod,
            "podUid": self.lab.found(self.namespace, pod)["metadata"]["uid"],
            "partition": partition, "gpus": modules, "admitted": False, "allocated": False,
        }  # fmt: skip
        for module in modules:
            self.move(module, "Reserved", "Activating", "Leased", holder=holder)
            self.move(module, "Leased", holder={**holder, "admitted": True})
        self.open_gate(pod)

    def open_gate(self, pod: str) -> None:
        """Let the scheduler have the pod."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        body = {"spec": {"schedulingGates": None}}
        status, answer = self.api.request("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, answer

    def take(self, pod: str, partition: int) -> None:
        """End the pod and make its GPUs free again."""
        self.lab.kubectl("delete", "pod", pod, f"--namespace={self.namespace}")
        modules = TABLE.partition(partition).modules
        for module in modules:
            self.move(module, "Releasing")
        eventually(lambda: not self.allocated().intersection(modules), "the kubelet lets them go")
        for module in modules:
            cycle = self.lease(module)["status"]["cycle"]
            self.free(module, cycle=cycle + 1)

    def allocated(self) -> set[int]:
        """Modules whose lease says that the kubelet gave them away."""
        leases = {module: self.lease(module) for module in MODULES}
        return {m for m, o in leases.items() if o["status"].get("holder", {}).get("allocated")}

    def offered(self) -> tuple[str | None, str | None]:
        """GPUs that the node has, and those that it offers."""
        status = self.lab.node(self.node)["status"]
        return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)

    def wait_for_offer(self, total: int, healthy: int) -> None:
        wanted = (str(total), str(healthy))
        eventually(lambda: self.offered() == wanted, f"{healthy} of {total} GPUs are offered")

    def wait_for_news(self) -> None:
        """Two reports of the kubelet: what the second says, it has looked at since."""
        for _ in range(2):
            known = self._reported()
            eventually(lambda known=known: self._reported() != known, "the kubelet reports")

    def _reported(self) -> str:
        conditions = self.lab.node(self.node)["status"]["conditions"]
        return str(next(c["lastHeartbeatTime"] for c in conditions if c["type"] == "Ready"))

    def vfio(self, pod: str) -> set[str]:
        """What the container has below /dev/vfio."""
        script = "ls /dev/vfio 2>/dev/null; true"
        return set(self.lab.run_in(self.namespace, pod, "sh", "-c", script).stdout.split())

    def opens(self, pod: str, path: str) -> str:
        """What the kernel says when the container opens a device."""
        script = f": < {path}"
        return self.lab.run_in(self.namespace, pod, "sh", "-c", script).stderr


def declared(lab: RealLab, accounts: Accounts) -> Recorder:
    """What the stack declares of the programs and their rights."""

    def declare() -> None:
        home = System(
            "system",
            accounts=accounts,
            settings=settings(lab.names[0]),
            secrets={"bmc-password": "x"},
        )
        Programs("programs", image=IMAGE, replicas=1, nodes=lab.names, system=home)

    with own_event_loop():
        return record(declare)


def manifests(recorder: Recorder, token: str) -> list[dict[str, Any]]:
    """The namespace, the device plugin and what it needs; names known in the whole cluster are its own."""
    wanted = [
        ":Namespace", ":ConfigMap", ":ServiceAccount", ":ClusterRole", ":ClusterRoleBinding", ":DaemonSet",
    ]  # fmt: skip
    found = []
    for kind in wanted:
        for key, inputs in recorder.of(kind).items():
            if "device-plugin" in key:
                manifest = json.loads(json.dumps(inputs))
                if manifest["kind"] in _CLUSTER_WIDE:
                    manifest["metadata"]["name"] += f"-{token}"
                if manifest["kind"] == "ClusterRoleBinding":
                    manifest["roleRef"]["name"] += f"-{token}"
                found.append(manifest)
    return found


@contextmanager
def real_gpus(lab: RealLab, namespace: str) -> Iterator[RealGpus]:
    """The plugin runs and all GPUs are free."""
    accounts = Accounts(f"{namespace}-system")
    running = nodes.status(lab.folder).nodes[lab.names[0]]
    (running.folder / "cdi" / "nvidia.com-pgpu.json").write_text(cdi_spec())
    runtime_class = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": KATA_HANDLER,
        "metadata": {"name": f"kata-{lab.token}"},
    }  # fmt: skip
    made = [runtime_class, *manifests(declared(lab, accounts), lab.token)]
    with lab.cluster.api() as api:
        gpus = RealGpus(lab, api, namespace, accounts.namespace(Program.DEVICE_PLUGIN))
        api.apply(crd())
        eventually(lambda: api.request("GET", _LEASES)[0] == 200, "leases are served")
        try:
            for module in MODULES:
                pci = f"0000:{module:02x}:00.0"
                spec = GPULeaseSpec(node=gpus.node, module=module, pci=pci, device=device(module))
                status, answer = api.request("POST", _LEASES, lease_object(spec))
                assert status == 201, answer
                gpus.free(module)
            for manifest in made:
                lab.kubectl("create", "-f", "-", given=json.dumps(manifest))
            gpus.wait_for_offer(8, 8)
            yield gpus
        finally:
            for manifest in reversed(made):
                lab.kubectl(
                    "delete",
                    "--ignore-not-found",
                    "--wait=false",
                    "-f",
                    "-",
                    given=json.dumps(manifest),
                )
            for module in MODULES:
                api.delete(f"{_LEASES}/{gpus.node}-gpu{module}")
