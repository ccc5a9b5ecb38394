"""Rows 5 and 7: patience for VMs that boot for minutes, and versions of Kubernetes and containerd."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import Flaw, Path, show
from gpuclusters.config.kata import Snapshotter
from gpuclusters.config.kubernetes import ContainerdConfigVersion
from gpuclusters.config.plan import largest_partition, share
from gpuclusters.config.rules.rule import rule
from gpuclusters.domain.sizing import boot_seconds, guest_cdi_seconds
from gpuclusters.domain.versions import (
    CONTAINERD_CDI_ALWAYS,
    CONTAINERD_CDI_DEFAULT,
    CONTAINERD_EROFS,
    POD_RESOURCES_GET,
    older,
    parse_release,
)

_AFTER_CDI_SECONDS = 60


@rule(5, needs=["kata", "kubernetes"])
def kubelet_outwaits_kata(config: CaasConfig) -> Iterable[Flaw]:
    """The kubelet waits at least as long as Kata: the shorter of the two is what counts."""
    kubelet = config.kubernetes.kubelet.runtime_request_timeout_seconds
    create = config.kata.create_container_timeout_seconds
    if kubelet < create:
        yield Flaw(
            ("kubernetes", "kubelet", "runtime-request-timeout-seconds"),
            f"is less than kata.create-container-timeout-seconds, which is {create}: the kubelet "
            "gives up while the VM boots",
            show(kubelet),
            f"write {create} or more",
        )


@rule(5, needs=["kata"])
def kata_outwaits_its_guest(config: CaasConfig) -> Iterable[Flaw]:
    """Creating a container includes waiting for the guest's CDI, and a minute for the rest."""
    create = config.kata.create_container_timeout_seconds
    cdi = config.kata.cdi_timeout_seconds
    if create < cdi + _AFTER_CDI_SECONDS:
        yield Flaw(
            ("kata", "create-container-timeout-seconds"),
            f"is less than cdi-timeout-seconds and a minute, {cdi} + {_AFTER_CDI_SECONDS}",
            show(create),
            f"write {cdi + _AFTER_CDI_SECONDS} or more",
        )


@rule(5, needs=["kata", "platform", "nodes", "partition_layout"])
def guests_have_time_for_their_drivers(config: CaasConfig) -> Iterable[Flaw]:
    """The agent waits until the driver of the largest partition has all its GPUs."""
    gpus = largest_partition(config)
    needed = guest_cdi_seconds(gpus)
    if gpus and config.kata.cdi_timeout_seconds < needed:
        yield Flaw(
            ("kata", "cdi-timeout-seconds"),
            f"is too low for {gpus} GPUs in one VM, whose driver takes about {needed} seconds",
            show(config.kata.cdi_timeout_seconds),
            "write 600",
        )


@rule(5, needs=["kata", "platform", "nodes", "partition_layout", "tenants"])
def guests_have_time_to_boot(config: CaasConfig) -> Iterable[Flaw]:
    """The shim tries long enough to reach the agent of the largest VM."""
    gpus = largest_partition(config)
    memory = max(
        (share(config, one).default_container.memory_gib for one in config.tenants), default=0
    )
    needed = boot_seconds(gpus, memory)
    if gpus and config.kata.dial_timeout_seconds < needed:
        yield Flaw(
            ("kata", "dial-timeout-seconds"),
            f"is too low for a VM with {gpus} GPUs and {memory} GiB, which boots for about "
            f"{needed} seconds",
            show(config.kata.dial_timeout_seconds),
            "write 1200",
        )


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
            show(config.kata.snapshotter.value),
            "write overlayfs or nydus, or upgrade containerd",
        )


RULES = (
    kubelet_outwaits_kata,
    kata_outwaits_its_guest,
    guests_have_time_for_their_drivers,
    guests_have_time_to_boot,
    kubernetes_versions_are_pinned,
    kubelet_tells_kata_which_gpus,
    containerd_finds_cdi_specs,
    containerd_reads_its_drop_in,
    containerd_has_the_snapshotter,
)
