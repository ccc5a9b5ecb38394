"""The virtual machine of a pod on a real node, as its simulated host sees it.

The container runs under runc, with the devices that the kubelet gave it. What a virtual machine would do
outside of it is played: while it lives, its partition is in use, and its tenant's data stay in the GPUs.
"""

import asyncio
import logging

from lab.hosts.injecting import BusyError
from lab.kubelet.device_manager import device_requests
from lab.kubelet.machine import Machine, partition_of
from lab.kubelet.real_devices import RealDevices, SilentError
from lab.kubelet.seen_pod import Pod, SeenPod, first

_POLL_SECONDS = 0.2
_log = logging.getLogger(__name__)


def has_virtual_machine(pod: Pod) -> bool:
    requests = any(device_requests(container) for container in pod["spec"]["containers"])
    return requests and partition_of(pod) is not None


async def play(seen: SeenPod, machine: Machine, devices: RealDevices) -> None:
    """From the start of the pod's container until nothing of it runs."""
    await first(seen.runs, seen.over)
    given = await _given(seen, devices)
    if given and await _begins(seen, machine, given):
        _log.info("%s/%s: its virtual machine has GPUs %s", *seen.name, ", ".join(given))
    await seen.over.wait()
    if seen.gone.is_set():
        await _until_stopped(seen, devices)
    if given:
        await machine.end(seen.pod)
        _log.info("%s/%s: its virtual machine is gone", *seen.name)


async def _begins(seen: SeenPod, machine: Machine, given: tuple[str, ...]) -> bool:
    """Whether its virtual machine has the GPUs; while another one has one of them, that is tried again."""
    while not seen.over.is_set():
        try:
            await machine.begin(seen.pod, given)
        except BusyError as error:
            _log.error("%s/%s: %s", *seen.name, error)
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return True
    return False


async def _given(seen: SeenPod, devices: RealDevices) -> tuple[str, ...]:
    """What its kubelet gave it; nothing if it ended before the kubelet could be asked."""
    while not seen.over.is_set():
        try:
            if given := await devices.of(*seen.name):
                return given
        except SilentError as error:
            _log.info("%s/%s: %s", *seen.name, error)
        await asyncio.sleep(_POLL_SECONDS)
    return ()


async def _until_stopped(seen: SeenPod, devices: RealDevices) -> None:
    """A pod may be deleted by force while its node cannot be reached: what runs there runs on."""
    while True:
        try:
            if await devices.of(*seen.name) is None:
                return
        except SilentError as error:
            if not devices.socket.parent.exists():
                # The node itself was taken out of the lab.
                return
            _log.info("%s/%s: %s", *seen.name, error)
        await asyncio.sleep(_POLL_SECONDS)
