"""A machine made ready to pass its GPUs through: packages, what it boots with, functions on vfio-pci.

Deliberately does not own: the operating system, the service VM, Kubernetes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_command import remote

from components.host_connection import HostConnection
from gpuclusters.boot.resource import HostBoot
from gpuclusters.core import scripts
from gpuclusters.vfio.resource import VfioBinding


@dataclass(frozen=True, kw_only=True)
class HostPreparationArgs:
    """What one machine needs to be told."""

    connection: HostConnection
    private_key: pulumi.Input[str] | None
    kernel_arguments: Sequence[str]
    """All that must be on the kernel's command line (`boot.model.kernel_arguments`)."""
    files: Mapping[str, str]
    """Files of modprobe, sysctl and limits by path (`boot.model.host_files`)."""
    vfio_functions: Sequence[Mapping[str, str]]
    """What belongs to vfio-pci: `address`, `pci_id` and `pci_class` of each; all three must agree."""
    huge_pages_1g_by_numa_node: Mapping[int, int] = field(default_factory=dict)
    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Version by name of the package; None for any."""
    may_reboot: bool = False
    """Whether the machine may be rebooted when its kernel lacks an argument."""
    reboot_timeout_seconds: int = 1200
    adopt: bool = False
    """Whether what is on the machine already is taken over, if it is as declared."""
    requires: Sequence[pulumi.Resource] = ()
    """What must be there before the first change: the checks of all machines."""


class HostPreparation(pulumi.ComponentResource):
    """Three resources for each machine, however many GPUs it has."""

    boot_id: pulumi.Output[str]
    """Of the boot in which all arguments are in effect."""
    ready: pulumi.Resource
    """The last of its resources: what needs a prepared machine depends on it."""

    def __init__(
        self, name: str, args: HostPreparationArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:HostPreparation", name, None, opts)
        connection = args.connection.as_input()
        wanted = [f"{p}={v}" if v else p for p, v in sorted(args.packages.items())]
        packages = remote.Command(
            f"{name}-packages",
            connection=args.connection.command_connection(args.private_key),
            create=f"sudo -n sh -s -- {shlex.join(wanted)}",
            update=f"sudo -n sh -s -- {shlex.join(wanted)}",
            stdin=scripts.read("host/install_packages.sh"),
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )
        boot = HostBoot(
            f"{name}-boot",
            connection=connection,
            kernel_arguments=list(args.kernel_arguments),
            files=dict(args.files),
            huge_pages_1g={str(n): c for n, c in sorted(args.huge_pages_1g_by_numa_node.items())},
            reboot="allow" if args.may_reboot else "refuse",
            reboot_timeout_seconds=args.reboot_timeout_seconds,
            adopt=args.adopt,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[packages]),
        )
        vfio = VfioBinding(
            f"{name}-vfio",
            connection=connection,
            functions=[dict(function) for function in args.vfio_functions],
            adopt=args.adopt,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[boot]),
        )
        self.boot_id = boot.boot_id
        self.ready = vfio
        self.register_outputs({"boot_id": self.boot_id})
