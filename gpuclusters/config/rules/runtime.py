"""Rows 5, 7 and 13: patience for VMs that boot for minutes, what they are made of, and versions.

Timeouts that the configuration does not state are derived and fit each other; see `boot.guest_profile`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.boot.guest_profile import GUEST_BASE_MIB
from gpuclusters.config.boot import boot_profile
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.kata import Snapshotter
from gpuclusters.config.kubernetes import ContainerdConfigVersion
from gpuclusters.config.plan import share
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.domain.versions import (
    CONTAINERD_CDI_ALWAYS,
    CONTAINERD_CDI_DEFAULT,
    CONTAINERD_EROFS,
    POD_RESOURCES_GET,
    older,
    parse_release,
)
from gpuclusters.kata.model import GIB

_PROFILE = (
    *("kata", "kubernetes", "device_access", "platform", "nodes", "partition_layout", "tenants"),
)
"""Sections that the boot profile is made from."""


@rule(5, "caas.kubelet-timeout")
def kubelet_outwaits_kata(config: CaasConfig) -> Iterable[Finding]:
    stated = config.kubernetes.kubelet.runtime_request_timeout_seconds
    least = boot_profile(config).problems().get("kubelet_request_timeout")
    if stated is not None and least is not None:
        yield finding(
            ("kubernetes", "kubelet", "runtime-request-timeout-seconds"),
            f"is less than Kata's create_container_timeout, which is {least}: the kubelet gives up "
            "while the VM boots",
            show(stated),
            f"write {least} or more, or leave it out",
        )


@rule(5, "caas.kata-timeout")
def kata_outwaits_its_guest(config: CaasConfig) -> Iterable[Finding]:
    stated = config.kata.create_container_timeout_seconds
    profile = boot_profile(config)
    least = profile.problems().get("create_container_timeout")
    if stated is not None and least is not None:
        yield finding(
            ("kata", "create-container-timeout-seconds"),
            f"is less than the boot takes, about {profile.estimate.total} seconds, or than "
            f"agent.cdi_timeout and a minute, {profile.cdi_timeout} + 60",
            show(stated),
            f"write {least} or more, or leave it out",
        )


@rule(5, "caas.guest-driver-timeout")
def guests_have_time_for_their_drivers(config: CaasConfig) -> Iterable[Finding]:
    stated = config.kata.cdi_timeout_seconds
    profile = boot_profile(config)
    if stated is not None and "cdi_timeout" in profile.problems():
        derived = boot_profile(_without(config, "cdi_timeout_seconds")).cdi_timeout
        yield finding(
            ("kata", "cdi-timeout-seconds"),
            f"is too low for {profile.guest.gpus} GPUs in one VM, whose driver takes about "
            f"{profile.estimate.guest} seconds when all goes well",
            show(stated),
            f"leave it out, which means {derived}",
        )


@rule(5, "caas.guest-boot-timeout")
def guests_have_time_to_boot(config: CaasConfig) -> Iterable[Finding]:
    stated = config.kata.dial_timeout_seconds
    profile = boot_profile(config)
    if stated is not None and "dial_timeout" in profile.problems():
        guest = profile.guest
        derived = boot_profile(_without(config, "dial_timeout_seconds")).dial_timeout
        yield finding(
            ("kata", "dial-timeout-seconds"),
            f"is too low for a VM with {guest.gpus} GPUs and {guest.memory_gib} GiB, which boots for "
            f"about {profile.estimate.total} seconds",
            show(stated),
            f"leave it out, which means {derived}",
        )


@rule(13, "caas.vm-overhead")
def overhead_covers_the_vm(config: CaasConfig) -> Iterable[Finding]:
    stated = config.kata.overhead.memory_mib
    least = boot_profile(config).memory_overhead_mib
    if stated < least:
        yield finding(
            ("kata", "overhead", "memory-mib"),
            f"is less than a VM takes beside its containers, {least} MiB: the kernel would end it",
            show(stated),
            f"write {least} or more, or leave it out",
        )


@rule(13, "caas.huge-pages-missing", each=["nodes"])
def huge_pages_are_reserved(config: CaasConfig) -> Iterable[Finding]:
    if not config.kata.huge_pages:
        return
    base = GUEST_BASE_MIB // GIB
    sizes = [share(config, tenant).default_container.memory_gib for tenant in config.tenants]
    needed = max(sizes, default=0) + base
    for position, node in enumerate(config.nodes):
        pages = sum(node.hugepages_gib_per_numa_node or ())
        if pages < needed:
            yield finding(
                ("nodes", position, "hugepages-gib-per-numa-node"),
                f"reserves {pages} GiB, while kata.huge-pages is on and a VM of default size takes "
                f"{needed}",
                show(list(node.hugepages_gib_per_numa_node or ())),
                "reserve what the machine's VMs take together, for example [512, 512], or set "
                "kata.huge-pages: false",
            )


def _without(config: CaasConfig, key: str) -> CaasConfig:
    """The configuration as if this timeout of Kata were not stated."""
    return config.model_copy(update={"kata": config.kata.model_copy(update={key: None})})


@rule(7, "caas.kubernetes-version-not-pinned")
def kubernetes_versions_are_pinned(config: CaasConfig) -> Iterable[Finding]:
    for path, value in (
        (("kubernetes", "version"), config.kubernetes.version),
        (("kubernetes", "containerd", "version"), config.kubernetes.containerd.version),
    ):
        if parse_release(value) is None:
            yield finding(
                path,
                "is not a version",
                show(value),
                "write its numbers in quotes, for example 1.34.2 or 2.3.0",
            )


@rule(7, "caas.pod-resources-get-off")
def kubelet_tells_kata_which_gpus(config: CaasConfig) -> Iterable[Finding]:
    kubernetes = config.kubernetes
    if older(kubernetes.version, POD_RESOURCES_GET) and not kubernetes.kubelet.pod_resources_get:
        yield finding(
            ("kubernetes", "version"),
            "is older than 1.34 and its kubelets run without the gate KubeletPodResourcesGet, so "
            "that Kata cannot learn a pod's GPUs",
            show(kubernetes.version),
            "upgrade, or switch the gate on and set kubernetes.kubelet.pod-resources-get: true",
        )


@rule(7, "caas.containerd-cdi")
def containerd_finds_cdi_specs(config: CaasConfig) -> Iterable[Finding]:
    containerd = config.kubernetes.containerd
    path: Path = ("kubernetes", "containerd", "enable-cdi")
    release = parse_release(containerd.version)
    if release is None:
        return
    if release < CONTAINERD_CDI_DEFAULT and not containerd.enable_cdi:
        yield finding(
            path,
            f"is off while containerd {containerd.version} ignores CDI specs without it",
            "false",
            "write true",
        )
    if release >= CONTAINERD_CDI_ALWAYS and containerd.enable_cdi:
        yield finding(
            path,
            f"no longer exists in containerd {containerd.version}, where CDI is always on",
            "true",
            "remove it",
        )


@rule(7, "caas.containerd-config-version")
def containerd_reads_its_drop_in(config: CaasConfig) -> Iterable[Finding]:
    containerd = config.kubernetes.containerd
    if (
        older(containerd.version, CONTAINERD_CDI_DEFAULT)
        and containerd.config_version is ContainerdConfigVersion.V3
    ):
        yield finding(
            ("kubernetes", "containerd", "config-version"),
            f"is unknown to containerd {containerd.version}, which would ignore the drop-in",
            show(containerd.config_version.value),
            'write "2"',
        )


@rule(7, "caas.snapshotter-missing")
def containerd_has_the_snapshotter(config: CaasConfig) -> Iterable[Finding]:
    erofs = config.kata.snapshotter is Snapshotter.EROFS
    version = config.kubernetes.containerd.version
    if erofs and older(version, CONTAINERD_EROFS):
        yield finding(
            ("kata", "snapshotter"),
            f"needs containerd 2.2, while kubernetes.containerd.version is {version}",
            show(Snapshotter.EROFS.value),
            "write overlayfs or nydus, or upgrade containerd",
        )


@rule(7, "caas.confidential-image-pull")
def confidential_guests_pull_their_images(config: CaasConfig) -> Iterable[Finding]:
    shim, snapshotter = config.kata.shim, config.kata.snapshotter
    if shim.confidential and snapshotter is Snapshotter.OVERLAYFS:
        yield finding(
            ("kata", "snapshotter"),
            f"unpacks images on the machine, and {shim} is confidential: its guest pulls them itself",
            show(snapshotter.value),
            "remove it for nydus, as Kata's chart has it, or write erofs",
        )
