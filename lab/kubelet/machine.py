"""The simulated host under a node: to the program both are one machine.

A pod that was given GPUs is a virtual machine there: it holds the GPUs' VFIO groups open, leaves its
tenant's data in their memory, and is gone before the pod is said to have ended.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.files import read_json
from lab.hosts import HostsError, injecting
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware import tenant
from lab.kubelet.kube import TENANT_LABEL

LEASE_ANNOTATION = "gpu-clusters.dev/lease"
"""`HOST/PARTITION` of a pod's lease, as docs/leases.md has it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    hosts: Path
    name: str

    async def begin(self, pod: Mapping[str, Any], devices: Iterable[str]) -> None:
        """The pod's virtual machine runs on the GPUs with these ids, which are module numbers.

        Raises:
            BusyError: another one has one of them.
        """
        partition = partition_of(pod)
        if partition is None:
            return
        metadata = pod["metadata"]
        holder = _holder(pod)
        owner = (metadata.get("labels") or {}).get(TENANT_LABEL, metadata["namespace"])
        modules = sorted(map(int, devices))

        def boot() -> None:
            injecting.set_partition_in_use(self.hosts, self.name, partition, holder)
            tenant.use(self.hosts, self.name, modules, owner)

        await self._do(boot)

    async def end(self, pod: Mapping[str, Any]) -> None:
        if partition_of(pod) is not None:
            holder = _holder(pod)
            await self._do(lambda: injecting.end_virtual_machine(self.hosts, self.name, holder))

    async def keep_only(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """After a restart: virtual machines of pods that are gone are gone too."""
        known = {_holder(pod) for pod in pods}

        def clear() -> None:
            file = HostsFolder(self.hosts).host(self.name).virtual_machines
            for user in (read_json(file) or {}).values():
                # Others than pods, which tests put there, are called otherwise.
                if "/" in user["holder"] and user["holder"] not in known:
                    injecting.end_virtual_machine(self.hosts, self.name, user["holder"])

        await self._do(clear)

    async def _do(self, act: Any) -> None:
        try:
            await asyncio.to_thread(act)
        except injecting.BusyError:
            raise
        except HostsError as error:
            # A lab whose hosts are being stopped has no machine to change.
            _log.warning("%s: %s", self.name, error)


def _holder(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def partition_of(pod: Mapping[str, Any]) -> int | None:
    """The partition of its lease, None for a pod that has none."""
    lease = (pod["metadata"].get("annotations") or {}).get(LEASE_ANNOTATION, "")
    _, slash, number = lease.rpartition("/")
    return int(number) if slash and number.isdecimal() else None
