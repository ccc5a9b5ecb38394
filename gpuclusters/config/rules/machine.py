"""Rules of caas: VMs have the time, memory and software that they need, and one owner of each."""

from __future__ import annotations

import difflib

from gpuclusters.boot.command_line import key_of
from gpuclusters.boot.guest_profile import GUEST_BASE_MIB
from gpuclusters.boot.model import Preparation
from gpuclusters.compat.versions import CONTAINERD_EROFS, KERNEL_HUGE_FAULTS, older
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.kubernetes import LabChart
from gpuclusters.config.nodes import DeviceAccess, Kata, Node, Snapshotter
from gpuclusters.config.plan import (
    boot_profile,
    memory_gib,
    most_guests,
    overhead_gib,
    partitions,
    preset,
    service_vm_gib,
    share,
)
from gpuclusters.config.rules.rule import Wrong, Wrongs, rule
from gpuclusters.config.tenants import Tenant
from gpuclusters.core import codes
from gpuclusters.core.finding import Level
from gpuclusters.host.drop_ins import ContainerdSchema
from gpuclusters.kata import model as kata_model
from gpuclusters.kata.model import GIB, guests_mib

_SHOWN = 8
_ARGUMENT_TWICE = "caas.kernel-argument-twice"


@rule("caas.kubelet-timeout")
def kubelet_outwaits_kata(config: CaasConfig) -> Wrongs:
    stated = config.kubernetes.kubelet.runtime_request_timeout_seconds
    least = boot_profile(config).problems().get("kubelet_request_timeout")
    if stated is not None and least is not None:
        yield Wrong("kubernetes.kubelet.runtime-request-timeout-seconds", least=least)


@rule("caas.kata-timeout", "kata")
def kata_outwaits_its_guest(config: CaasConfig, kata: Kata) -> Wrongs:
    profile = boot_profile(config)
    least = profile.problems().get("create_container_timeout")
    if kata.create_container_timeout_seconds is not None and least is not None:
        yield Wrong("create-container-timeout-seconds", profile=profile, least=least)


@rule("caas.guest-driver-timeout", "kata")
def guests_have_time_for_their_drivers(config: CaasConfig, kata: Kata) -> Wrongs:
    profile = boot_profile(config)
    if kata.cdi_timeout_seconds is not None and "cdi_timeout" in profile.problems():
        derived = boot_profile(config, cdi_timeout=None)
        yield Wrong("cdi-timeout-seconds", profile=profile, derived=derived)


@rule("caas.guest-boot-timeout", "kata")
def guests_have_time_to_boot(config: CaasConfig, kata: Kata) -> Wrongs:
    profile = boot_profile(config)
    if kata.dial_timeout_seconds is not None and "dial_timeout" in profile.problems():
        derived = boot_profile(config, dial_timeout=None)
        yield Wrong("dial-timeout-seconds", profile=profile, derived=derived)


@rule("caas.feature-discovery-twice", "kata", level=Level.WARN)
def one_node_feature_discovery(config: CaasConfig, kata: Kata) -> Wrongs:
    if config.gpu_operator and kata.node_feature_discovery:
        yield Wrong("node-feature-discovery")


@rule("caas.chart-value-unknown", "kata")
def chart_reads_its_values(_config: CaasConfig, kata: Kata) -> Wrongs:
    for path, known in kata_model.unknown_keys(kata.values):
        near = difflib.get_close_matches(path[-1][:100], known, n=1, cutoff=0.6)
        yield Wrong(
            ("values", *path),
            "near" if near else "unknown",
            got=f"the key {show(path[-1])}",
            near=near[0] if near else None,
            known=[*known[:_SHOWN], *(["…"] if len(known) > _SHOWN else [])],
            version=kata_model.VERSION,
        )


@rule("caas.chart-value-twice", "kata")
def chart_values_are_set_once(_config: CaasConfig, kata: Kata) -> Wrongs:
    for key in kata.values:
        if key in kata_model.OWNED:
            yield Wrong(("values", key), got=f"the key {show(key)}", instead=kata_model.OWNED[key])


@rule("caas.lab-chart")
def stand_ins_are_of_the_lab(config: CaasConfig) -> Wrongs:
    for path, chart in (
        ("kata.chart.source", config.kata.chart),
        ("storage.csi-driver-chart.source", config.storage.csi_driver_chart),
    ):
        if isinstance(chart, LabChart) and isinstance(config.hosts, ExistingHosts):
            yield Wrong(path)


@rule("caas.containerd-config-version")
def containerd_reads_its_drop_in(config: CaasConfig) -> Wrongs:
    containerd = config.kubernetes.containerd
    if containerd.is_old and containerd.config_version is ContainerdSchema.V3:
        yield Wrong("kubernetes.containerd.config-version", version=containerd.version)


@rule("caas.snapshotter-missing")
def containerd_has_the_snapshotter(config: CaasConfig) -> Wrongs:
    version = config.kubernetes.containerd.version
    if config.kata.snapshotter is Snapshotter.EROFS and older(version, CONTAINERD_EROFS):
        yield Wrong("kata.snapshotter", version=version)


@rule("caas.confidential-image-pull", "kata")
def confidential_guests_pull_their_images(_config: CaasConfig, kata: Kata) -> Wrongs:
    if kata.shim.confidential and kata.snapshotter is Snapshotter.OVERLAYFS:
        yield Wrong("snapshotter", shim=kata.shim)


@rule("caas.cdi-kind", "device_access")
def cdi_kind_is_the_resource_name(_config: CaasConfig, access: DeviceAccess) -> Wrongs:
    name = access.resource_name
    if access.cdi_kind != name:
        yield Wrong("cdi-kind", name=name)


@rule("caas.vm-overhead", "kata")
def overhead_covers_the_vm(config: CaasConfig, kata: Kata) -> Wrongs:
    least = boot_profile(config).memory_overhead_mib
    if kata.overhead.memory_mib < least:
        yield Wrong("overhead.memory-mib", least=least)


@rule("caas.machine-memory", "nodes")
def guests_fit_into_the_machine(config: CaasConfig, node: Node) -> Wrongs:
    largest = max((tenant.default_container.memory_gib for tenant in config.tenants), default=0)
    memory, overhead = memory_gib(config, node), config.kata.overhead.memory_mib
    cuts = most_guests(config, node)
    if memory is None or not largest or not cuts:
        return
    guests = guests_mib(cuts, largest * GIB, overhead)
    needed = -(-(guests + config.service_vm.memory_mib) // GIB)
    if needed > memory:
        got, vms = show(memory), len(cuts)
        yield Wrong("memory-gib", got=got, guests=vms, largest=largest, needed=needed)


@rule("caas.largest-container", "tenants")
def largest_guest_fits_somewhere(config: CaasConfig, tenant: Tenant) -> Wrongs:
    known = [memory_gib(config, node) or 0 for node in config.nodes]
    if not tenant.max_container or not all(known):
        return
    room = max(known) - overhead_gib(config) - service_vm_gib(config)
    if tenant.max_container.memory_gib > room:
        path, left = "max-container.memory-gib", max(room, 0)
        yield Wrong(path, left=left, largest=max(known), most=max(room, 1))


@rule("caas.huge-pages-too-many", "nodes")
def huge_pages_fit(config: CaasConfig, node: Node) -> Wrongs:
    pages, numa_nodes = node.hugepages_gib_per_numa_node, preset(config).numa_nodes
    if pages is None:
        return
    key = "hugepages-gib-per-numa-node"
    if len(pages) != numa_nodes:
        yield Wrong(key, "numbers", count=len(pages), numa_nodes=numa_nodes)
    elif len(set(pages)) > 1:
        yield Wrong(key, "uneven")
    memory = memory_gib(config, node)
    if memory is not None and sum(pages) > (room := memory - service_vm_gib(config)):
        yield Wrong(key, "memory", reserved=sum(pages), left=max(room, 0), memory=memory)


@rule("caas.huge-pages-missing", "nodes")
def huge_pages_are_reserved(config: CaasConfig, node: Node) -> Wrongs:
    if not config.kata.huge_pages:
        return
    sizes = [share(config, tenant).default_container.memory_gib for tenant in config.tenants]
    needed = max(sizes, default=0) + GUEST_BASE_MIB // GIB
    pages = list(node.hugepages_gib_per_numa_node or ())
    if sum(pages) < needed:
        yield Wrong("hugepages-gib-per-numa-node", reserved=sum(pages), needed=needed)


@rule("caas.slow-gpu-mapping", "nodes", level=Level.WARN)
def several_gpus_start_fast(config: CaasConfig, node: Node) -> Wrongs:
    gpus = max((partition.size for partition in partitions(config, node)), default=0)
    if gpus > 1 and node.kernel is not None and older(node.kernel, KERNEL_HUGE_FAULTS):
        yield Wrong("kernel", gpus=gpus, first=".".join(map(str, KERNEL_HUGE_FAULTS)))


@rule(_ARGUMENT_TWICE, "preparation")
def extra_arguments_are_not_set_elsewhere(_config: CaasConfig, preparation: Preparation) -> Wrongs:
    set_elsewhere = codes.of(_ARGUMENT_TWICE).cases
    names = [key_of(argument) for argument in preparation.extra_kernel_arguments]
    for position, name in enumerate(names):
        path = ("extra-kernel-arguments", position)
        if name in set_elsewhere:
            yield Wrong(path, name)
        elif name in names[:position]:
            yield Wrong(path)
