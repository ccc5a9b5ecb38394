"""Faults of libvirt and of the service VM. Used through `faults`, which knows all kinds."""

from __future__ import annotations

from typing import Literal

from lab.hosts.fabric_faults import BaseFault


class LibvirtDown(BaseFault):
    """libvirt's daemon does not run: `virsh` cannot connect."""

    kind: Literal["libvirt-down"] = "libvirt-down"


class VmDoesNotBoot(BaseFault):
    """VMs that are started show nothing on their console, for ever."""

    kind: Literal["vm-does-not-boot"] = "vm-does-not-boot"


class VmIgnoresShutdown(BaseFault):
    """VMs do nothing when they are asked to shut down."""

    kind: Literal["vm-ignores-shutdown"] = "vm-ignores-shutdown"


class VmRefusesSsh(BaseFault):
    """Nothing listens on the SSH port of VMs."""

    kind: Literal["vm-refuses-ssh"] = "vm-refuses-ssh"


class FabricManagerStaysResident(BaseFault):
    """The fabric manager of a VM that boots fails at start and keeps its process: active, and silent."""

    kind: Literal["fabric-manager-stays-resident"] = "fabric-manager-stays-resident"
