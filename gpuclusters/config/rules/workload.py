"""Row 12: what tenants run works in a VM, and stays in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kata import Sandbox
from gpuclusters.config.kubernetes import PodSecurityLevel
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.tenants import NfsMount
from gpuclusters.core.finding import Finding, Level

_SHARED_DRIVER = (
    "does not keep tenants apart: its nvproxy passes their calls on to one NVIDIA driver in the machine's "
    "own kernel, so that a fault of the driver is every tenant's; and that driver would have to be on "
    "machines that must have none, because their GPUs are passed through",
    "write kata",
)
_NOT_BUILT = (
    "is not built: it needs the NVIDIA driver on the machines and GPUs that are not on vfio-pci, which is "
    "another cluster than this type makes",
    "write kata, or use cluster-type: rke2, whose machines have the driver",
)
_NO_GLIBC = re.compile(r"(^|[/:_.-])(alpine|musl|distroless|busybox|chainguard|wolfi)([/:_.@*-]|$)")


@rule(12, "caas.mounted-files-copied", each=["tenants"])
def mounted_files_stay_live(config: CaasConfig) -> Iterable[Finding]:
    shim = config.kata.shim
    for position, tenant in enumerate(config.tenants):
        if tenant.nfs and tenant.nfs.mounted_by is NfsMount.KUBELET and not shim.shares_files:
            yield finding(
                ("tenants", position, "nfs", "mounted-by"),
                f"does not work with {shim.value}, which copies files into the VM once",
                show(tenant.nfs.mounted_by.value),
                "write guest, or set kata.shim: qemu-nvidia-gpu",
            )


@rule(12, "caas.pods-privileged")
def pods_stay_in_their_vm(config: CaasConfig) -> Iterable[Finding]:
    level = config.kubernetes.pod_security
    if level is PodSecurityLevel.PRIVILEGED:
        yield finding(
            ("kubernetes", "pod-security"),
            "lets tenants' pods use hostNetwork and hostPath, past their VM and its policies",
            show(level.value),
            "write restricted, or baseline",
        )


@rule(12, "caas.any-registry", each=["tenants"], level=Level.WARN)
def images_come_from_listed_registries(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        if not tenant.images.allowed and not isinstance(config.hosts, LabHosts):
            yield finding(
                ("tenants", position, "images", "allowed"),
                "is empty, so the tenant chooses which host the machines contact, and its name may lead to "
                "any address that they reach",
                NOTHING,
                "list its registries: [nvcr.io/nvidia, registry.example.com/acme]",
            )


@rule(12, "caas.registry-not-allowed", each=["tenants"])
def passwords_are_for_allowed_registries(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        known = {source.partition("/")[0] for source in tenant.images.allowed}
        for entry, name in enumerate(tenant.images.registry_auth):
            if known and name not in known:
                yield finding(
                    ("tenants", position, "images", "registry-auth", entry),
                    "is no registry that the tenant's images.allowed names",
                    show(name),
                    f"write one of {', '.join(sorted(known))}, or add it there",
                )


@rule(12, "caas.image-without-glibc", each=["tenants"])
def images_have_glibc(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        for entry, image in enumerate(tenant.images.allowed):
            found = _NO_GLIBC.search(image)
            if found:
                yield finding(
                    ("tenants", position, "images", "allowed", entry),
                    f"is an image of {found.group(2)}, in which NVIDIA's hooks cannot run",
                    show(image),
                    "use an image with glibc and a shell, for example Ubuntu's or Debian's",
                )


@rule(12, "caas.sandbox-shares-kernel", each=["tenants"])
def tenants_have_a_kernel_of_their_own(config: CaasConfig) -> Iterable[Finding]:
    # gVisor's documentation on GPU support: `nvproxy` passes what it knows on to the machine's NVIDIA driver.
    if config.sandbox is Sandbox.GVISOR:
        wrong, instead = _NOT_BUILT if len(config.tenants) <= 1 else _SHARED_DRIVER
        yield finding(("sandbox",), wrong, show(config.sandbox.value), instead)
