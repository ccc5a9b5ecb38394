"""`storage`: who mounts the file servers of tenants, and the folders that a tenant has there."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from gpuclusters.config.base import Address, DnsLabel, Gib, Section, Text, matches, refusal
from gpuclusters.config.charts import Chart
from gpuclusters.tenancy.volume import AccessMode, Mounter


def _mode(value: Any) -> Any:
    if isinstance(value, AccessMode) or value in [mode.value for mode in AccessMode]:
        return value
    raise refusal("is not an access mode", "write read-write-many or read-only-many")


class NfsVolume(Section):
    """A folder that is mounted on the machines and shared with the tenant's VMs."""

    name: DnsLabel
    """Name of its claim in the tenant's namespace."""
    server: Address
    """Address of the file server, one of the tenant's nfs.servers."""
    path: Annotated[
        Text,
        matches(
            r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._+@=-]+)+",
            "is not a folder that a file server exports",
            "write it from the root, without .. and blanks: /export/acme",
        ),
    ]
    """The folder as the server exports it."""
    size_gib: Gib
    """What the claim counts in the tenant's quota; NFS itself limits nothing."""
    mode: Annotated[AccessMode, BeforeValidator(_mode, json_schema_input_type=AccessMode)] = (
        AccessMode.READ_WRITE_MANY
    )
    """read-write-many or read-only-many."""


class Storage(Section):
    """NFS for tenants."""

    mounter: Mounter = Mounter.KUBELET
    """kubelet: its own NFS volumes, with mount.nfs of the machine. csi: csi-driver-nfs, which is then
    installed."""
    csi_driver_version: Text = "4.13.5"
    """Version of the chart csi-driver-nfs."""
    csi_driver_chart: Chart | None = None
    """Where its chart comes from; by default the lab's in the lab, else the project's own repository."""
