"""Row 12, storage: tenants' folders are mounted where that works, and count in their quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.tenants import NfsMount
from gpuclusters.core.finding import Finding


@rule(12, "caas.volume-mounted-by-guest", each=["tenants"])
def volumes_are_mounted_on_the_machine(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        if tenant.nfs and tenant.nfs.volumes and tenant.nfs.mounted_by is NfsMount.GUEST:
            yield finding(
                ("tenants", position, "nfs", "volumes"),
                "are volumes of the kubelet, while mounted-by is guest",
                show([volume.name for volume in tenant.nfs.volumes]),
                "set mounted-by: kubelet, or remove them: a guest mounts what nfs.servers lets it reach",
            )


@rule(12, "caas.volume-server", each=["tenants"])
def volumes_are_on_the_tenants_servers(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        for entry, volume in enumerate(tenant.nfs.volumes if tenant.nfs else ()):
            servers = tenant.nfs.servers if tenant.nfs else ()
            if not any(volume.server in network for network in servers):
                yield finding(
                    ("tenants", position, "nfs", "volumes", entry, "server"),
                    "is none of the tenant's nfs.servers",
                    show(str(volume.server)),
                    "write an address within nfs.servers, or add its range there",
                )


@rule(12, "caas.volume-twice", each=["tenants"])
def volumes_have_names_of_their_own(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        names = Counter(volume.name for volume in (tenant.nfs.volumes if tenant.nfs else ()))
        for entry, volume in enumerate(tenant.nfs.volumes if tenant.nfs else ()):
            if names[volume.name] > 1:
                yield finding(
                    ("tenants", position, "nfs", "volumes", entry, "name"),
                    "is the name of another volume of the tenant too",
                    show(volume.name),
                    "give each its own name",
                )


@rule(11, "caas.volumes-above-quota", each=["tenants"])
def volumes_fit_the_quota(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        total = sum(volume.size_gib for volume in (tenant.nfs.volumes if tenant.nfs else ()))
        if total > tenant.storage_gib:
            yield finding(
                ("tenants", position, "storage-gib"),
                f"is less than the tenant's nfs.volumes ask for, {total} GiB: the last claims are refused",
                show(tenant.storage_gib),
                f"write {total} or more, or make the volumes smaller",
            )
