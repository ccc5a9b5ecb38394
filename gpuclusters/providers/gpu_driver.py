"""NVIDIA's driver on one host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import DiffResult

from gpuclusters.domain import reconcile_gpu_driver
from gpuclusters.domain.gpu_driver import GpuDriverInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.gpu_driver import SshDriverHost
    from gpuclusters.rke2.host import SshRke2Control


class GpuDriverProvider(KeptProvider[GpuDriverInputs]):
    """Keeps the driver of one host; another version is an update in place, with a restart where needed."""

    model = GpuDriverInputs
    changes_machine = True
    identity = frozenset({"connection.host"})

    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult:
        """As ever, but whom to ask for a drain is no part of the host."""
        return super().diff(id_, olds, {**news, "control": olds.get("control")})

    def ensure(self, inputs: GpuDriverInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Install, restart, prove; or only what of it is missing."""
        from gpuclusters.adapters.here import StderrReporter, SystemClock

        reached = self._reach(inputs)
        live = reconcile_gpu_driver.ensure(
            inputs, reached, self._servers(inputs), SystemClock(), StderrReporter()
        )
        return reconcile_gpu_driver.outputs(inputs, live)

    def differences(self, inputs: GpuDriverInputs) -> Sequence[str]:
        """Of a driver that is there."""
        return reconcile_gpu_driver.differences(inputs, self._reach(inputs))

    def observe(self, inputs: GpuDriverInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The driver as it is; None once nothing of ours is on the host."""
        live = self._reach(inputs).inspect()
        if not live.applied and not live.digests:
            return None
        return Live(reconcile_gpu_driver.outputs(inputs, live), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether the last look found something that is not as it was left."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: GpuDriverInputs, before: Properties) -> None:  # noqa: ARG002
        """Take out the packages that we brought."""
        reconcile_gpu_driver.remove(self._reach(inputs))

    def _reach(self, inputs: GpuDriverInputs) -> SshDriverHost:
        from gpuclusters.adapters.gpu_driver import SshDriverHost
        from gpuclusters.adapters.here import SystemClock

        return SshDriverHost(host(inputs.connection, self.ssh_key), SystemClock())

    def _servers(self, inputs: GpuDriverInputs) -> list[SshRke2Control]:
        from gpuclusters.rke2.host import SshRke2Control

        return [SshRke2Control(host(one, self.ssh_key)) for one in inputs.control]


class GpuDriver(Resource, module="gpu", name="GpuDriver"):
    """A host whose GPUs are all served by exactly one driver, or that is ready for the operator's."""

    driver_version: pulumi.Output[str]
    """The driver that the kernel runs; empty where the operator brings it."""
    gpu_product: pulumi.Output[str]
    """Name of its GPUs as `nvidia-smi` says it; empty where the operator brings the driver."""
    gpu_count: pulumi.Output[int]
    """GPUs that the driver serves; where the operator brings it, GPUs on the bus."""
    reboot_pending: pulumi.Output[bool]
    """Whether the last look found that the host must be restarted."""
    kernel: pulumi.Output[str]
    """Release of the kernel that its modules are for."""
    drift: pulumi.Output[Sequence[str]]
    """In words, what a refresh found that is not as it was left."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        gpus: pulumi.Input[int],
        source: pulumi.Input[str] = "host",
        version: pulumi.Input[str] | None = None,
        modules: pulumi.Input[str] = "open",
        packages: pulumi.Input[str] = "distribution",
        nvswitch: pulumi.Input[bool] = False,
        reboot: pulumi.Input[str] = "allowed",
        reboot_timeout_seconds: pulumi.Input[int] = 1200,
        control: pulumi.Input[Sequence[Any]] = (),
        node_name: pulumi.Input[str] = "",
        drain_timeout_seconds: pulumi.Input[int] = 600,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the driver of a host.

        Args:
            name: logical name.
            connection: how the host is reached.
            gpus: how many GPUs it has.
            source: `host`, or `operator` for a host that is only made ready.
            version: exact version of the driver; None with `operator`.
            modules: `open` or `proprietary`.
            packages: `distribution` or `nvidia`: whose.
            nvswitch: whether the GPUs are behind NVSwitches.
            reboot: `allowed` or `never`.
            reboot_timeout_seconds: patience for one restart.
            control: connections of servers that drain the host where it is a node already.
            node_name: its node.
            drain_timeout_seconds: patience for pods to leave.
            adopt: take over a driver that is there already, if it is this one.
            opts: resource options.
        """
        properties: dict[str, Any] = {
            "connection": connection,
            "source": source,
            "version": version,
            "modules": modules,
            "packages": packages,
            "gpus": gpus,
            "nvswitch": nvswitch,
            "reboot": reboot,
            "reboot_timeout_seconds": reboot_timeout_seconds,
            "control": control,
            "node_name": node_name,
            "drain_timeout_seconds": drain_timeout_seconds,
            "driver_version": None,
            "gpu_product": None,
            "gpu_count": None,
            "reboot_pending": None,
            "kernel": None,
            "drift": None,
        }
        if adopt:
            properties["adopt"] = True
        super().__init__(name, properties, opts)
