"""The NVIDIA driver of one GPU host, before RKE2 starts on it.

Owns: the driver's packages and modules, nouveau's absence, the fabric manager, restarts for them.
Deliberately does not own: the repositories that packages come from, the firmware's Secure Boot, RKE2, drivers
in containers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi

from components.host_connection import HostConnection
from gpuclusters.driver.resource import GpuDriver


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverHostArgs:
    """What the driver of one host is."""

    connection: HostConnection
    gpus: int
    """How many GPUs the machine has; another count on the bus is a fault that names both."""
    source: Literal["host", "operator"] = "host"
    """`operator`: the host only gets rid of nouveau, and must have no driver of its own."""
    version: str | None = None
    """Exact version, like 580.178.04; None with `operator`."""
    modules: Literal["open", "proprietary"] = "open"
    packages: Literal["distribution", "nvidia"] = "distribution"
    """Whose packages. The RHEL family has NVIDIA's alone."""
    nvswitch: bool = False
    """Whether the GPUs are behind NVSwitches: then the fabric manager of the driver's version runs."""
    may_reboot: bool = True
    reboot_timeout_seconds: int = 1200
    control: Sequence[HostConnection] = ()
    """Servers of the cluster, without this host: where it is a node already it is drained before its driver
    changes. Without them a host that runs RKE2 is left alone, with a fault that says so."""
    drain_timeout_seconds: int = 600
    adopt: bool = False
    """Whether a driver that is there already is taken over, if it is this one."""
    requires: Sequence[pulumi.Resource] = ()
    """What must be done before: checks of all hosts; for upgrades, the drivers of hosts that come before."""


class DriverHost(pulumi.ComponentResource):
    """One host, one resource named `<host>-driver`."""

    driver_version: pulumi.Output[str]
    """The driver that the kernel runs; empty with `operator`."""
    gpu_product: pulumi.Output[str]
    """Name of the GPUs as the driver says it; empty with `operator`."""
    gpu_count: pulumi.Output[int]
    """GPUs that work."""
    reboot_pending: pulumi.Output[bool]
    ready: Sequence[pulumi.Resource]
    """What RKE2 on this host depends on."""

    def __init__(
        self, name: str, args: DriverHostArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:DriverHost", name, None, opts)
        host = args.connection.host
        driver = GpuDriver(
            f"{host}-driver",
            connection=args.connection.as_input(),
            source=args.source,
            version=args.version,
            modules=args.modules,
            packages=args.packages,
            gpus=args.gpus,
            nvswitch=args.nvswitch,
            reboot="allow" if args.may_reboot else "refuse",
            reboot_timeout_seconds=args.reboot_timeout_seconds,
            control=[one.as_input() for one in args.control if one.host != host],
            node_name=host,
            drain_timeout_seconds=args.drain_timeout_seconds,
            adopt=args.adopt,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        self.driver_version = driver.driver_version
        self.gpu_product = driver.gpu_product
        self.gpu_count = driver.gpu_count
        self.reboot_pending = driver.reboot_pending
        self.ready = (driver,)
        self.register_outputs(
            {
                "driver_version": self.driver_version,
                "gpus": {"count": self.gpu_count, "product": self.gpu_product},
                "reboot_pending": self.reboot_pending,
            }
        )
