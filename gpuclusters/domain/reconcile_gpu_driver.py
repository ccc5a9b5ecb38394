"""The driver of a host: read, compare, act, restart if nobody is disturbed, prove that it serves all GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain import (
    adoption_host,
    gpu_driver_packages,
    gpu_driver_plan,
    known_errors,
)
from gpuclusters.domain.gpu_driver import DriverSource, GpuDriverInputs, LiveDriver
from gpuclusters.domain.gpu_driver_packages import Packages
from gpuclusters.domain.gpu_driver_plan import Plan
from gpuclusters.domain.gpu_driver_refusals import before_changing
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.rke2.control import Control, answering

_ROUNDS = 6
"""Drain, restart for a kernel, install, restart for nouveau, fabric manager; and one that finds nothing."""
_REASON = "driver-"
"""How the note begins that a node was drained for its driver; see `rke2_node.DRAINED`."""


class DriverHost(Protocol):
    """The host, by role."""

    @property
    def place(self) -> str:
        """As errors name it."""

    def inspect(self) -> LiveDriver:
        """What is there."""

    def write(self, path: str, content: str) -> None:
        """Write a file."""

    def remove_file(self, path: str) -> None:
        """Remove a file; absent is fine."""

    def build_initramfs(self, family: str, digest: str) -> None:
        """For all kernels; noted with the digest."""

    def install(self, family: str, packages: Packages) -> None:
        """Exactly these versions; what of them is new is noted."""

    def hold(self, family: str, names: Sequence[str]) -> None:
        """Keep packages from being upgraded by themselves."""

    def uninstall(self, family: str) -> None:
        """Remove what `install` noted, holds, and our notes."""

    def reboot(self, boot_id: str, timeout_seconds: int) -> None:
        """Back when the host answers with another boot id."""

    def load(self) -> None:
        """Load the module."""

    def start_fabric_manager(self) -> None:
        """Enable it, and start it anew."""

    def finish(self, digest: str) -> None:
        """Note that the driver is as it must be."""


def ensure(
    inputs: GpuDriverInputs,
    host: DriverHost,
    servers: Sequence[Control],
    clock: Clock,
    reporter: Reporter,
) -> LiveDriver:
    """Bring the driver of a host to its inputs.

    Args:
        inputs: which driver.
        host: the host.
        servers: of the cluster that the host may be a node of already: they drain it.
        clock: for waiting.
        reporter: hears of restarts.

    Raises:
        RefusalError: it must not be done, or the driver does not serve all GPUs in the end.
        AdapterError: a step failed; running again goes on.
        Refused: no server answers that could drain it.
    """
    drained = False
    for _ in range(_ROUNDS):
        live = host.inspect()
        packages = packages_of(inputs, live)
        todo = gpu_driver_plan.plan(inputs, live, _installable(packages))
        wanted = packages if packages is not None else ""
        before_changing(inputs, live, wanted, todo, drained=drained)
        if todo.is_empty:
            _prove(inputs, host, live)
            if live.applied != inputs.digest:
                host.finish(inputs.digest)
            if live.node and servers:
                _open(inputs, answering(servers, clock, reporter))
            return live
        if todo.disturbs and live.node and not drained:
            _close(inputs, answering(servers, clock, reporter))
            drained = True
            continue
        _act(inputs, host, live, _installable(packages), todo, reporter)
    raise RefusalError(
        host.place,
        f"the driver is not at rest after {_ROUNDS} rounds: {'; '.join(_left(inputs, host))}",
        "look on the host what changes it again (configuration management, upgrades), then run again",
    )


def differences(inputs: GpuDriverInputs, host: DriverHost) -> tuple[str, ...]:
    """In words, how a driver that is there is not the one that is declared; empty if there is none."""
    live = host.inspect()
    return tuple(adoption_host.driver(inputs, live, _installable(packages_of(inputs, live))))


def _close(inputs: GpuDriverInputs, server: Control) -> None:
    if server.node(inputs.node_name) is not None:
        server.drain(inputs.node_name, f"{_REASON}{inputs.version}", inputs.drain_timeout_seconds)


def _open(inputs: GpuDriverInputs, server: Control) -> None:
    """Open it again, if we have closed it: in this run or in one that was killed."""
    node = server.node(inputs.node_name)
    if node is not None and node.drained_for.startswith(_REASON):
        server.uncordon(inputs.node_name)


def packages_of(inputs: GpuDriverInputs, live: LiveDriver) -> Packages | str | None:
    """The packages of the driver on this host; why there are none; None where it gets no driver."""
    if inputs.source is not DriverSource.HOST:
        return None
    try:
        return gpu_driver_packages.packages(inputs, live)
    except ValueError as error:
        return str(error)


def _installable(packages: Packages | str | None) -> Packages | None:
    return packages if isinstance(packages, Packages) else None


def _act(
    inputs: GpuDriverInputs,
    host: DriverHost,
    live: LiveDriver,
    packages: Packages | None,
    todo: Plan,
    reporter: Reporter,
) -> None:
    """One round, up to a restart."""
    for path, text in sorted(todo.write.items()):
        host.write(path, text)
    if todo.install and packages is not None:
        host.install(live.family, packages)
    if todo.initramfs:
        host.build_initramfs(live.family, gpu_driver_plan.initramfs_digest())
    if todo.hold:
        host.hold(live.family, todo.hold)
    if todo.reboot:
        reporter.note(f"{host.place}: restarting: {todo.reboot}")
        host.reboot(live.boot_id, inputs.reboot_timeout_seconds)
        return
    if todo.load:
        host.load()
    if todo.fabric:
        host.start_fabric_manager()


def _prove(inputs: GpuDriverInputs, host: DriverHost, live: LiveDriver) -> None:
    """It serves all GPUs, which is more than being installed."""
    if inputs.source is not DriverSource.HOST:
        return
    if live.module and live.module != inputs.version:
        raise RefusalError(
            host.place,
            f"the packages brought module {live.module}, and {inputs.version} is wanted",
            "write the driver.version that the repository has, or set up one that has this version",
        )
    if live.smi == 0 and len(live.shown) == inputs.gpus:
        return
    known = known_errors.explain("driver", live.said)
    cause, remedy = (
        (known.cause, known.remedy)
        if known
        else (
            f"nvidia-smi exited with {live.smi}" if live.smi else "a GPU does not start",
            "read `dmesg | grep -e NVRM -e Xid` on the host",
        )
    )
    raise RefusalError(
        host.place,
        f"driver {live.loaded} runs and serves {len(live.shown)} of {inputs.gpus} GPUs: {cause}"
        + (f" ({live.said})" if live.said else ""),
        remedy,
    )


def _left(inputs: GpuDriverInputs, host: DriverHost) -> list[str]:
    live = host.inspect()
    packages = _installable(packages_of(inputs, live))
    return gpu_driver_plan.drift(inputs, live, packages) or ["nothing any more"]


def remove(host: DriverHost) -> None:
    """Take out what we brought. The module stays in the kernel until the next boot; gone already is fine.

    Raises:
        RefusalError: programs run on the GPUs.
    """
    live = host.inspect()
    if live.users:
        raise RefusalError(
            host.place,
            f"its GPUs are in use by processes {', '.join(live.users)}",
            "drain the node or end them, then run again",
        )
    host.uninstall(live.family)
    for path in gpu_driver_plan.contents(live):
        host.remove_file(path)


def outputs(inputs: GpuDriverInputs, live: LiveDriver) -> dict[str, Any]:
    """What is kept of the host beside its inputs."""
    known = _installable(packages_of(inputs, live))
    return {
        "driver_version": live.loaded,
        "gpu_product": live.product,
        "gpu_count": len(live.shown) if live.loaded else len(live.gpus),
        "reboot_pending": bool(gpu_driver_plan.plan(inputs, live, known).reboot),
        "kernel": live.kernel,
        "drift": gpu_driver_plan.drift(inputs, live, known),
    }
