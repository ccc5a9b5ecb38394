"""Row 12: what tenants run works in a VM, and stays in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, Flaw, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kata import Sandbox
from gpuclusters.config.kubernetes import PodSecurityLevel
from gpuclusters.config.rules.rule import Severity, rule
from gpuclusters.config.tenants import NfsMount
from gpuclusters.domain.sandbox import gvisor_refusal

_NO_GLIBC = re.compile(r"(^|[/:_.-])(alpine|musl|distroless|busybox|chainguard|wolfi)([/:_.@*-]|$)")


@rule(12, needs=["kata"], each=["tenants"])
def mounted_files_stay_live(config: CaasConfig) -> Iterable[Flaw]:
    """Only the Go shim shares what the kubelet mounts; the others copy it once."""
    shim = config.kata.shim
    for position, tenant in enumerate(config.tenants):
        if tenant.nfs and tenant.nfs.mounted_by is NfsMount.KUBELET and not shim.shares_files:
            yield Flaw(
                ("tenants", position, "nfs", "mounted-by"),
                f"does not work with {shim.value}, which copies files into the VM once",
                show(tenant.nfs.mounted_by.value),
                "write guest, or set kata.shim: qemu-nvidia-gpu",
            )


@rule(12, needs=["kubernetes"])
def pods_stay_in_their_vm(config: CaasConfig) -> Iterable[Flaw]:
    """Pods use neither the host's network nor its paths: there they would be outside of their VM."""
    level = config.kubernetes.pod_security
    if level is PodSecurityLevel.PRIVILEGED:
        yield Flaw(
            ("kubernetes", "pod-security"),
            "lets tenants' pods use hostNetwork and hostPath, past their VM and its policies",
            show(level.value),
            "write restricted, or baseline",
        )


@rule(12, needs=["hosts"], each=["tenants"], severity=Severity.WARNING)
def images_come_from_listed_registries(config: CaasConfig) -> Iterable[Flaw]:
    """A name that a tenant chose may lead to any address that the machines reach; a list closes that."""
    for position, tenant in enumerate(config.tenants):
        if not tenant.images.allowed and not isinstance(config.hosts, LabHosts):
            yield Flaw(
                ("tenants", position, "images", "allowed"),
                "is empty, so the tenant chooses which host the machines contact, and its name may lead to "
                "any address that they reach",
                NOTHING,
                "list its registries: [nvcr.io/nvidia, registry.example.com/acme]",
            )


@rule(12, each=["tenants"])
def passwords_are_for_allowed_registries(config: CaasConfig) -> Iterable[Flaw]:
    """A registry that wants a tenant's password is one that the tenant's images come from."""
    for position, tenant in enumerate(config.tenants):
        known = {source.partition("/")[0] for source in tenant.images.allowed}
        for entry, name in enumerate(tenant.images.registry_auth):
            if known and name not in known:
                yield Flaw(
                    ("tenants", position, "images", "registry-auth", entry),
                    "is no registry that the tenant's images.allowed names",
                    show(name),
                    f"write one of {', '.join(sorted(known))}, or add it there",
                )


@rule(12, each=["tenants"])
def images_have_glibc(config: CaasConfig) -> Iterable[Flaw]:
    """NVIDIA's hooks in the guest need glibc and a shell: musl and distroless images do not start."""
    for position, tenant in enumerate(config.tenants):
        for entry, image in enumerate(tenant.images.allowed):
            found = _NO_GLIBC.search(image)
            if found:
                yield Flaw(
                    ("tenants", position, "images", "allowed", entry),
                    f"is an image of {found.group(2)}, in which NVIDIA's hooks cannot run",
                    show(image),
                    "use an image with glibc and a shell, for example Ubuntu's or Debian's",
                )


@rule(12, needs=["sandbox"], each=["tenants"])
def tenants_have_a_kernel_of_their_own(config: CaasConfig) -> Iterable[Flaw]:
    """Containers of tenants are virtual machines; gVisor shares the machine's GPU driver."""
    if config.sandbox is Sandbox.GVISOR:
        wrong, instead = gvisor_refusal(len(config.tenants))
        yield Flaw(("sandbox",), wrong, show(config.sandbox.value), instead)


RULES = (
    mounted_files_stay_live,
    pods_stay_in_their_vm,
    images_come_from_listed_registries,
    passwords_are_for_allowed_registries,
    images_have_glibc,
    tenants_have_a_kernel_of_their_own,
)
