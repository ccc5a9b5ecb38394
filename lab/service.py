"""The lab as `gpu-clusters` finds it, by the entry point `lab` of the group `gpu_clusters`."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from lab import (
    control_plane,
    gpu_operator,
    hosts,
    issuer,
    kata_runtime,
    kubelet,
    lifecycle,
    node_kind,
    nodes,
    parts,
    real_nodes,
    spec,
    tools,
    usernetes,
)
from lab.hosts.ssh import remote
from lab.nodes import Kind, Wanted
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, host_platform

TOOLS_OF_EVERY_LAB = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_ERRORS = (
    hosts.HostsError,
    control_plane.ControlPlaneError,
    issuer.IssuerError,
    kubelet.KubeletError,
    nodes.NodesError,
    gpu_operator.OperatorError,
    usernetes.UsernetesError,
    tools.ToolError,
)


class Machine(BaseModel):
    """One simulated machine and its node, both of this name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    platform: str
    """What it is made of: a folder of `lab/hosts/prepared`, or `plain-server` and its kin."""
    bare: bool = True
    """Nothing of gpu-clusters is on it; else it was prepared already."""
    plain: bool = False
    """Its node offers what a server without GPUs does."""
    joins: bool = True
    """It becomes a node by joining a cluster; else it is one from the start."""
    gpu_operator: bool = False
    """The GPU Operator works on its node."""
    rootless: bool = False
    """Its node is inside of a container, and always played."""


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    machines: tuple[Machine, ...]
    image: str = ""
    """Pods of this image run as processes of this machine, from this checkout."""
    proofs: frozenset[str] = frozenset()
    """Images of proofs that are Python programs."""


class Lab:
    """The lab in one folder; it need not be there yet."""

    error = lifecycle.LabError
    """What every method raises: one sentence for a person."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def choice(self, wanted: str) -> nodes.Choice:
        """What its nodes are, or would be; changes nothing."""
        return node_kind.decide(self._folder, Wanted(wanted), nodes.machine_facts())

    def kind(self) -> str | None:
        """What the nodes of the lab that is there are; None if there is none."""
        there = spec.known(self._folder)
        return there.kind.value if there else None

    def kata(self, kind: str) -> str:
        """What Kata's runtime class starts on nodes of this kind."""
        return kata_runtime.sentence(Kind(kind))

    def start(
        self, kind: str, requests: Sequence[Mapping[str, Any]], report: Callable[[str], None]
    ) -> None:
        """Start what does not run of what the clusters want; of machines of one name the first's counts."""
        first, *others = (_spec(Request.model_validate(one), Kind(kind)) for one in requests)
        for other in others:
            first = first.beside(other)
        with self._one_error():
            lifecycle.start(self._folder, first, report)

    def stop(self, report: Callable[[str], None]) -> None:
        """Stop every process; the data stays."""
        with self._one_error():
            lifecycle.stop(self._folder, report)

    def remove(self, report: Callable[[str], None]) -> bool:
        """Stop it and remove its folder; gives whether there was one."""
        with self._one_error():
            return lifecycle.remove(self._folder, report)

    def claim(self) -> None:
        with self._one_error():
            lifecycle.claim(self._folder)

    def reinstall(self, host: str) -> None:
        """Install a machine's operating system anew."""
        with self._one_error():
            lifecycle.reinstall(self._folder, host)

    def execute(self, host: str, line: str) -> int:
        """Run a command on a machine, with this terminal; gives its exit status."""
        with self._one_error():
            return remote.execute(self._folder / "hosts", host, line)

    def status(self) -> list[dict[str, Any]]:
        """What it consists of, process by process; empty if there is no lab."""
        with self._one_error():
            return [part.as_json() for part in parts.status(self._folder)]

    def missing_tools(self, path: str | None) -> list[str]:
        """Programs that a start would fetch or build first."""
        cache, platform = ToolCache(), host_platform()
        return [
            name
            for name in TOOLS_OF_EVERY_LAB
            if shutil.which(name, path=path) is None and cache.find(TOOLS[name], platform) is None
        ]

    def token(self, tenant: str, seconds: float) -> str:
        """A token of the lab's issuer for a tenant."""
        with self._one_error():
            return issuer.token(self._folder / "issuer", tenant, seconds)

    def authority(self) -> Path:
        """The certificate of its authority."""
        return self._folder / lifecycle.AUTHORITY

    def pod_address(self, said: str) -> str | None:
        """Where this machine reaches a pod that is a process here; None for one in a real node."""
        return kubelet.reachable(said) if kubelet.is_process(said) else None

    def entrance(self, namespace: str, service: str, port: int) -> int:
        """The port of this machine's loopback that leads to a Service in real nodes."""
        with self._one_error():
            return nodes.entrance(self._folder / real_nodes.FOLDER, namespace, service, port)

    @contextmanager
    def _one_error(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self.error(str(error)) from error
        except OSError as error:
            file = f" ({error.filename})" if error.filename else ""
            raise self.error(
                f"the lab cannot work in its folder: {error.strerror or error}{file}"
            ) from error


def _spec(request: Request, kind: Kind) -> spec.LabSpec:
    def names(key: str) -> frozenset[str]:
        return frozenset(one.name for one in request.machines if getattr(one, key))

    plain = control_plane.PLAIN_CAPACITY
    made = spec.LabSpec(
        name=request.name,
        hosts=tuple(
            hosts.HostSpec(one.name, one.platform, condition="bare" if one.bare else "node")
            for one in request.machines
        ),
        nodes=tuple(
            control_plane.NodeSpec(one.name, capacity=plain, allocatable=plain)
            if one.plain
            else control_plane.NodeSpec(one.name)
            for one in request.machines
        ),
        image=request.image,
        joins=names("joins"),
        gpu_operator=names("gpu_operator"),
        usernetes=names("rootless"),
        kind=kind,
        proofs=request.proofs,
    )
    real = frozenset(node.name for node in made.nodes) - made.usernetes
    return replace(made, real=real if kind is Kind.REAL else frozenset())
