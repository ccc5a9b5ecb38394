"""How long a VM with GPUs boots, and every timeout and size that follows from it.

One object, so that no two of them can contradict each other: the kubelet outwaits Kata, Kata outwaits its
guest by a minute, whoever waits for the pod outwaits the kubelet.

The estimate is a model with few terms, fitted to published measurements of one machine with seven H100, a
VM of 125 GiB and Linux 6.8: 183 s with pages of 4 KiB and legacy VFIO, 146 s with huge pages, 114 s with
huge pages and iommufd; within the last, 58 s until the guest's CDI names the GPUs, of which 4 s per GPU are
its driver and 13 s its wait for the fabric. Linux 5.15 took more than half an hour for eight GPUs. From 6.15
on the kernel maps a BAR of 32 GiB in less than a millisecond instead of a second; no whole boot was
published for it. What is derived from estimates is therefore generous.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from gpuclusters.compat.versions import KERNEL_MEASURED, KERNEL_ONE_STEP, Release

GUEST_BASE_MIB = 8192
"""`default_memory` of Kata's GPU configurations: what a VM has beside the memory of its containers."""
HYPERVISOR_MIB = 2048
"""QEMU, virtiofsd and the shim in the pod's cgroup: what Kata's RuntimeClasses count beyond that."""

KATA_TIMEOUT_SECONDS = 1200
"""`create_container_timeout` of Kata's own GPU configurations; never less."""
AFTER_CDI_SECONDS = 60
"""What creating a container takes beside the wait for the guest's CDI."""

_FIRMWARE_SECONDS = 20.0
_SMALL_PAGES_SECONDS_PER_GIB = 0.4
_HUGE_PAGES_SECONDS_PER_GIB = 0.1
_BAR_SECONDS = 3.3
_LEGACY_MAP_SECONDS = 4.4
_SLOW_KERNEL_BAR_SECONDS = 225.0
_DRIVER_SECONDS = 4.0
_FABRIC_AND_CDI_SECONDS = 30.0

_KUBELET_SLACK_SECONDS = 60
_POD_SLACK_SECONDS = 120
_NODE_INSTALL_SECONDS = 300
_INSTALL_SECONDS = 1500
_INSTALL_WAVES = 10


def _minutes(seconds: float) -> int:
    """Rounded up to whole minutes, in seconds."""
    return -(-round(seconds) // 60) * 60


@dataclass(frozen=True, slots=True)
class Estimate:
    firmware: float
    """QEMU, firmware, guest kernel, agent."""
    memory: float
    """All of the guest's memory cleared and pinned for the IOMMU."""
    bars: float
    """The GPUs' memory mapped into the VM."""
    driver: float
    """The guest's driver takes the GPUs one after the other."""
    fabric: float
    """The driver waits for NVLink, and the guest's CDI is written."""

    @property
    def guest(self) -> int:
        """Until the guest's CDI names its GPUs, from when its driver begins."""
        return round(self.driver + self.fabric)

    @property
    def total(self) -> int:
        """Until the container can be created."""
        return round(self.firmware + self.memory + self.bars + self.driver + self.fabric)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    gpus: int
    memory_gib: int
    huge_pages: bool = False
    """Whether its memory is of 1-GiB pages."""
    iommufd: bool = False
    """Whether GPUs are passed by iommufd; it does not map their memory into the IOMMU."""
    kernel: Release | None = None
    """Of the machine; None is taken for the kernel of the measurements."""

    @property
    def linux(self) -> str:
        """Which kernel the estimate is for; boots differ more by it than by the number of GPUs."""
        assumed = "" if self.kernel else ", as no kernel is stated"
        return f"Linux {'.'.join(map(str, (self.kernel or KERNEL_MEASURED)[:2]))}{assumed}"

    def estimate(self) -> Estimate:
        page = _HUGE_PAGES_SECONDS_PER_GIB if self.huge_pages else _SMALL_PAGES_SECONDS_PER_GIB
        return Estimate(
            firmware=_FIRMWARE_SECONDS,
            memory=(self.memory_gib + GUEST_BASE_MIB / 1024) * page,
            bars=self.gpus * self._bar_seconds(),
            driver=self.gpus * _DRIVER_SECONDS,
            fabric=_FABRIC_AND_CDI_SECONDS if self.gpus else 0.0,
        )

    def _bar_seconds(self) -> float:
        kernel = self.kernel or KERNEL_MEASURED
        if kernel < KERNEL_MEASURED:
            return _SLOW_KERNEL_BAR_SECONDS
        if kernel >= KERNEL_ONE_STEP:
            return 0.0
        return _BAR_SECONDS + (0.0 if self.iommufd else _LEGACY_MAP_SECONDS)


@dataclass(frozen=True, slots=True)
class BootProfile:
    """Every timeout, in seconds, and every size that follows from one VM: the largest of a cluster."""

    guest: Guest
    estimate: Estimate
    cdi_timeout: int
    """`agent.cdi_timeout` on the guest's command line; Kata's default is 100."""
    create_container_timeout: int
    """`create_container_timeout` of the shim."""
    dial_timeout: int
    """`dial_timeout` (Go) or `reconnect_timeout_ms` (Rust): how long the agent may be silent."""
    kubelet_request_timeout: int
    """`runtimeRequestTimeout` of the kubelet: one value for all that it asks of containerd."""
    memory_overhead_mib: int = GUEST_BASE_MIB + HYPERVISOR_MIB
    """What the RuntimeClass counts for a VM beside its containers."""

    @classmethod
    def of(cls, guest: Guest) -> Self:
        """What follows from the estimate alone.

        The guest gets four times its part and five minutes, the whole boot twice its estimate and five
        minutes, and never less than Kata's own configurations give.
        """
        estimate = guest.estimate()
        cdi = _minutes(4 * estimate.guest + 300)
        create = max(
            KATA_TIMEOUT_SECONDS, cdi + AFTER_CDI_SECONDS, _minutes(2 * estimate.total + 300)
        )
        return cls(guest, estimate, cdi, create, create, create + _KUBELET_SLACK_SECONDS)

    def stated(self, **stated: int | None) -> Self:
        """The profile with what the operator states; what is not stated follows what is.

        `problems` says whether it still holds together.
        """
        given = {name: seconds for name, seconds in stated.items() if seconds is not None}
        cdi = given.get("cdi_timeout", self.cdi_timeout)
        create = max(self.create_container_timeout, cdi + AFTER_CDI_SECONDS)
        create = given.get("create_container_timeout", create)
        follows: dict[str, Any] = {
            "cdi_timeout": cdi,
            "create_container_timeout": create,
            "dial_timeout": create,
            "kubelet_request_timeout": create + _KUBELET_SLACK_SECONDS,
        }
        return replace(self, **follows | given)

    def problems(self) -> Mapping[str, int]:
        """Timeouts that are too short, by field, each with the least that would do."""
        least = {
            # Kata's own 100 s is known to be too short for eight GPUs, and to do for four.
            "cdi_timeout": 2 * self.estimate.guest,
            "create_container_timeout": max(
                self.cdi_timeout + AFTER_CDI_SECONDS, self.estimate.total
            ),
            "dial_timeout": self.estimate.total,
            "kubelet_request_timeout": self.create_container_timeout,
        }
        return {name: floor for name, floor in least.items() if getattr(self, name) < floor}

    @property
    def pod_start_deadline(self) -> int:
        """How long a pod that has its GPUs may take until its container runs.

        Longer than the kubelet tries once, so that the kubelet's own error is seen first.
        """
        return self.kubelet_request_timeout + _POD_SLACK_SECONDS


def install_at_once(machines: int) -> int:
    """On how many machines Kata is changed at the same time: all of them in ten waves at most."""
    return max(1, -(-machines // _INSTALL_WAVES))


def install_timeout_seconds(machines: int) -> int:
    """How long Helm waits until Kata is on all machines.

    Five minutes for each wave: some GB unpacked, containerd restarted, the node Ready again.
    """
    waves = -(-max(machines, 1) // install_at_once(machines))
    return _INSTALL_SECONDS + waves * _NODE_INSTALL_SECONDS
