"""Rows 5, 7 and 13: patience for VMs that boot for minutes, what they are made of, and versions.

Timeouts that the configuration does not state are derived and fit each other; see `boot.guest_profile`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.boot.guest_profile import GUEST_BASE_MIB
from gpuclusters.config.boot import boot_profile
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import Flaw, Path, show
from gpuclusters.config.kata import Snapshotter
from gpuclusters.config.kubernetes import ContainerdConfigVersion
from gpuclusters.config.plan import share
from gpuclusters.config.rules.rule import rule
from gpuclusters.domain.sizing import GIB
from gpuclusters.domain.versions import (
    CONTAINERD_CDI_ALWAYS,
    CONTAINERD_CDI_DEFAULT,
    CONTAINERD_EROFS,
    POD_RESOURCES_GET,
    older,
    parse_release,
)

_PROFILE = (
    *("kata", "kubernetes", "device_access", "platform", "nodes", "partition_layout", "tenants"),
)
"""Sections that the boot profile is made from."""


@rule(5, needs=_PROFILE)
def kubelet_outwaits_kata(config: CaasConfig) -> Iterable[Flaw]:
    """The kubelet waits at least as long as Kata: the shorter of the two is what counts."""
    stated = config.kubernetes.kubelet.runtime_request_timeout_seconds
    least = boot_profile(config).problems().get("kubelet_request_timeout")
    if stated is not None and least is not None:
        yield Flaw(
            ("kubernetes", "kubelet", "runtime-request-timeout-seconds"),
            f"is less than Kata's create_container_timeout, which is {least}: the kubelet gives up "
            "while the VM boots",
            show(stated),
            f"write {least} or more, or leave it out",
        )


@rule(5, needs=_PROFILE)
def kata_outwaits_its_guest(config: CaasConfig) -> Iterable[Flaw]:
    """Creating a container includes the boot, the wait for the guest's CDI, and a minute for the rest."""
    stated = config.kata.create_container_timeout_seconds
    profile = boot_profile(config)
    least = profile.problems().get("create_container_timeout")
    if stated is not None and least is not None:
        yield Flaw(
            ("kata", "create-container-timeout-seconds"),
            f"is less than the boot takes, about {profile.estimate.total} seconds, or than "
            f"agent.cdi_timeout and a minute, {profile.cdi_timeout} + 60",
            show(stated),
            f"write {least} or more, or leave it out",
        )


@rule(5, needs=_PROFILE)
def guests_have_time_for_their_drivers(config: CaasConfig) -> Iterable[Flaw]:
    """The agent waits until the driver of the largest partition has all its GPUs."""
    stated = config.kata.cdi_timeout_seconds
    profile = boot_profile(config)
    if stated is not None and "cdi_timeout" in profile.problems():
        derived = boot_profile(_without(config, "cdi_timeout_seconds")).cdi_timeout
        yield Flaw(
            ("kata", "cdi-timeout-seconds"),
            f"is too low for {profile.guest.gpus} GPUs in one VM, whose driver takes about "
            f"{profile.estimate.guest} seconds when all goes well",
            show(stated),
            f"leave it out, which means {derived}",
        )


@rule(5, needs=_PROFILE)
def guests_have_time_to_boot(config: CaasConfig) -> Iterable[Flaw]:
    """The shim tries long enough to reach the agent of the largest VM."""
    stated = config.kata.dial_timeout_seconds
    profile = boot_profile(config)
    if stated is not None and "dial_timeout" in profile.problems():
        guest = profile.guest
        derived = boot_profile(_without(config, "dial_timeout_seconds")).dial_timeout
        yield Flaw(
            ("kata", "dial-timeout-seconds"),
            f"is too low for a VM with {guest.gpus} GPUs and {guest.memory_gib} GiB, which boots for "
            f"about {profile.estimate.total} seconds",
            show(stated),
            f"leave it out, which means {derived}",
        )


@rule(13, needs=_PROFILE)
def overhead_covers_the_vm(config: CaasConfig) -> Iterable[Flaw]:
    """QEMU and the guest's own memory live in the pod's cgroup: less than they take ends the VM."""
    stated = config.kata.overhead.memory_mib
    least = boot_profile(config).memory_overhead_mib
    if stated < least:
        yield Flaw(
            ("kata", "overhead", "memory-mib"),
            f"is less than a VM takes beside its containers, {least} MiB: the kernel would end it",
            show(stated),
            f"write {least} or more, or leave it out",
        )


@rule(13, needs=["kata", "tenants"], each=["nodes"])
def huge_pages_are_reserved(config: CaasConfig) -> Iterable[Flaw]:
    """VMs of huge pages need as many on one machine as the smallest of them takes."""
    if not config.kata.huge_pages:
        return
    base = GUEST_BASE_MIB // GIB
    sizes = [share(config, tenant).default_container.memory_gib for tenant in config.tenants]
    needed = max(sizes, default=0) + base
    for position, node in enumerate(config.nodes):
        pages = sum(node.hugepages_gib_per_numa_node or ())
        if pages < needed:
            yield Flaw(
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


@rule(7, needs=["kubernetes"])
def kubernetes_versions_are_pinned(config: CaasConfig) -> Iterable[Flaw]:
    """Versions of Kubernetes and containerd are numbers, so that the other rules can compare them."""
    for path, value in (
        (("kubernetes", "version"), config.kubernetes.version),
        (("kubernetes", "containerd", "version"), config.kubernetes.containerd.version),
    ):
        if parse_release(value) is None:
            yield Flaw(
                path,
                "is not a version",
                show(value),
                "write its numbers in quotes, for example 1.34.2 or 2.3.0",
            )


@rule(7, needs=["kubernetes"])
def kubelet_tells_kata_which_gpus(config: CaasConfig) -> Iterable[Flaw]:
    """Kata asks the kubelet by PodResources `Get`, which is off before Kubernetes 1.34."""
    kubernetes = config.kubernetes
    if older(kubernetes.version, POD_RESOURCES_GET) and not kubernetes.kubelet.pod_resources_get:
        yield Flaw(
            ("kubernetes", "version"),
            "is older than 1.34 and its kubelets run without the gate KubeletPodResourcesGet, so "
            "that Kata cannot learn a pod's GPUs",
            show(kubernetes.version),
            "upgrade, or switch the gate on and set kubernetes.kubelet.pod-resources-get: true",
        )


@rule(7, needs=["kubernetes"])
def containerd_finds_cdi_specs(config: CaasConfig) -> Iterable[Flaw]:
    """Containerd 1.7 injects CDI devices only where told to; from 2.4 it refuses the switch."""
    containerd = config.kubernetes.containerd
    path: Path = ("kubernetes", "containerd", "enable-cdi")
    release = parse_release(containerd.version)
    if release is None:
        return
    if release < CONTAINERD_CDI_DEFAULT and not containerd.enable_cdi:
        yield Flaw(
            path,
            f"is off while containerd {containerd.version} ignores CDI specs without it",
            "false",
            "write true",
        )
    if release >= CONTAINERD_CDI_ALWAYS and containerd.enable_cdi:
        yield Flaw(
            path,
            f"no longer exists in containerd {containerd.version}, where CDI is always on",
            "true",
            "remove it",
        )


@rule(7, needs=["kubernetes"])
def containerd_reads_its_drop_in(config: CaasConfig) -> Iterable[Flaw]:
    """Plugin ids belong to a version of the configuration file; containerd 1.x knows version 2 alone."""
    containerd = config.kubernetes.containerd
    if (
        older(containerd.version, CONTAINERD_CDI_DEFAULT)
        and containerd.config_version is ContainerdConfigVersion.V3
    ):
        yield Flaw(
            ("kubernetes", "containerd", "config-version"),
            f"is unknown to containerd {containerd.version}, which would ignore the drop-in",
            show(containerd.config_version.value),
            'write "2"',
        )


@rule(7, needs=["kubernetes", "kata"])
def containerd_has_the_snapshotter(config: CaasConfig) -> Iterable[Flaw]:
    """The EROFS snapshotter came with containerd 2.2."""
    erofs = config.kata.snapshotter is Snapshotter.EROFS
    version = config.kubernetes.containerd.version
    if erofs and older(version, CONTAINERD_EROFS):
        yield Flaw(
            ("kata", "snapshotter"),
            f"needs containerd 2.2, while kubernetes.containerd.version is {version}",
            show(Snapshotter.EROFS.value),
            "write overlayfs or nydus, or upgrade containerd",
        )


@rule(7, needs=["kata"])
def confidential_guests_pull_their_images(config: CaasConfig) -> Iterable[Flaw]:
    """A confidential VM does not trust its host with its images; overlayfs unpacks them on the host."""
    shim, snapshotter = config.kata.shim, config.kata.snapshotter
    if shim.confidential and snapshotter is Snapshotter.OVERLAYFS:
        yield Flaw(
            ("kata", "snapshotter"),
            f"unpacks images on the machine, and {shim} is confidential: its guest pulls them itself",
            show(snapshotter.value),
            "remove it for nydus, as Kata's chart has it, or write erofs",
        )


RULES = (
    kubelet_outwaits_kata,
    kata_outwaits_its_guest,
    guests_have_time_for_their_drivers,
    guests_have_time_to_boot,
    overhead_covers_the_vm,
    huge_pages_are_reserved,
    kubernetes_versions_are_pinned,
    kubelet_tells_kata_which_gpus,
    containerd_finds_cdi_specs,
    containerd_reads_its_drop_in,
    containerd_has_the_snapshotter,
    confidential_guests_pull_their_images,
)
