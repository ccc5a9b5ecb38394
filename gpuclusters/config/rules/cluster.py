"""Rules of caas: every cluster, one made with RKE2, hand-over, the programs and their API."""

from __future__ import annotations

import datetime
import difflib
from functools import partial

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import DropIns
from gpuclusters.config import certificate, rke2_checks
from gpuclusters.config.caas import (
    Api,
    CaasConfig,
    ExternalExposure,
    GatewayExposure,
    GivenCertificate,
    IngressExposure,
    TlsExposure,
)
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.fault import HIDDEN, show, show_values
from gpuclusters.config.hosts import ExistingHosts, LabHosts, listed_machines
from gpuclusters.config.kubernetes import Distribution, LabKubernetes, Rke2Kubernetes
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import machine_addresses
from gpuclusters.config.rules.rule import (
    Wrong,
    Wrongs,
    machines_are_listed_once,
    named_twice,
    repeats,
    rule,
    unexpected_names,
)
from gpuclusters.config.tenants import Leases
from gpuclusters.core.finding import Level, Path
from gpuclusters.host.drop_ins import ContainerdSchema
from gpuclusters.lease.model import RecyclePolicy
from gpuclusters.rke2 import releases
from gpuclusters.rke2.host_config import PolicyEnforcement

_rke2 = partial(rule, of="kubernetes", kind=Rke2Kubernetes)
SHARED = (
    rule("caas.machine-twice")(machines_are_listed_once),
    _rke2("rke2.server-count", shared=True)(rke2_checks.servers_can_hold_a_majority),
    _rke2("rke2.single-server", shared=True, level=Level.WARN)(rke2_checks.one_server_is_no_spare),
    _rke2("rke2.default-runtime", shared=True)(rke2_checks.no_default_runtime),
    _rke2("rke2.environment-variable", shared=True)(rke2_checks.variables_are_those_of_a_proxy),
)
"""Rules that clusters of other types have too."""


@rule("caas.adopted-unknown", each=["nodes", "tenants"])
def adopted_things_are_in_the_cluster(config: CaasConfig) -> Wrongs:
    yield from unexpected_names(("adopt", "machines"), config.adopt.machines, _machines(config))
    tenants = {tenant.name for tenant in config.tenants}
    yield from unexpected_names(("adopt", "tenants"), config.adopt.tenants, tenants)


def _machines(config: CaasConfig) -> set[str]:
    cluster = config.kubernetes
    servers = cluster.servers if isinstance(cluster, Rke2Kubernetes) else ()
    return {node.name for node in config.nodes} | {server.name for server in servers}


@rule("caas.node-twice", each=["nodes"])
def node_names_differ(config: CaasConfig) -> Wrongs:
    names = [node.name for node in config.nodes]
    return named_twice("nodes", names)


@rule("caas.node-without-machine", "nodes")
def nodes_have_machines(config: CaasConfig, node: Node) -> Wrongs:
    if not isinstance(config.hosts, ExistingHosts):
        return
    known = [machine.name for machine in config.hosts.machines]
    if node.name not in known:
        yield Wrong("name", "known" if known else "none", known=show_values(known))


@rule("caas.machine-unused", "hosts", kind=ExistingHosts)
def machines_have_nodes(config: CaasConfig, hosts: ExistingHosts) -> Wrongs:
    used = _machines(config)
    for position, machine in enumerate(hosts.machines):
        if machine.name not in used:
            yield Wrong(("machines", position, "name"))


@rule("caas.lab-mixed")
def lab_is_one_thing(config: CaasConfig) -> Wrongs:
    lab_hosts = isinstance(config.hosts, LabHosts)
    if isinstance(config.kubernetes, Rke2Kubernetes):
        return  # made on whatever machines there are
    if lab_hosts != isinstance(config.kubernetes, LabKubernetes):
        other = "lab" if lab_hosts else "existing"
        yield Wrong("kubernetes.source", other=other)


@_rke2("rke2.network-too-small")
def networks_have_room(config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    ranges = {"pod-cidr": cluster.pod_cidr, "service-cidr": cluster.service_cidr}
    return rke2_checks.room(ranges, len(_machines(config)))


@rule("rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(config: CaasConfig) -> Wrongs:
    pods, services = config.kubernetes.pod_cidr, config.kubernetes.service_cidr
    ranges = {"kubernetes.pod-cidr": pods, "kubernetes.service-cidr": services}
    made = isinstance(config.kubernetes, Rke2Kubernetes)
    return rke2_checks.outside(machine_addresses(config) if made else (), ranges)


@_rke2("caas.drop-ins-not-imported")
def containerd_imports_its_drop_ins(_config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    if rke2_matrix.drop_ins(releases.parse_version(cluster.version)) is DropIns.NO:
        table = rke2_matrix.matrix().rke2.drop_ins
        likely = ", ".join(table[DropIns.LIKELY][minor] for minor in sorted(table[DropIns.LIKELY]))
        yield Wrong(
            "version", "no-drop-ins", confirmed=min(table[DropIns.CONFIRMED]), likely=likely
        )
    if cluster.containerd.config_version not in (None, ContainerdSchema.V3):
        yield Wrong("containerd.config-version", "config-version")
    if cluster.containerd.is_old:
        yield Wrong("containerd.version", "old-version")
    if cluster.distribution is not Distribution.RKE2:
        yield Wrong("distribution", "other-distribution")


@_rke2("caas.drop-ins-unconfirmed", level=Level.WARN)
def drop_ins_are_confirmed(_config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    version = releases.parse_version(cluster.version)
    known = version.minor <= rke2_matrix.newest_minor()
    if known and rke2_matrix.drop_ins(version) is DropIns.LIKELY:
        first = min(rke2_matrix.matrix().rke2.drop_ins[DropIns.CONFIRMED])
        yield Wrong("version", first=first)


@_rke2("caas.rke2-release-unknown", level=Level.WARN)
def the_release_is_known(_config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    newest = rke2_matrix.newest_minor()
    if releases.parse_version(cluster.version).minor > newest:
        yield Wrong("version", newest=newest)


@_rke2("caas.policy-closes-system", level=Level.WARN)
def always_closes_the_system_too(_config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    if cluster.cilium.policy_enforcement is PolicyEnforcement.ALWAYS:
        yield Wrong("cilium.policy-enforcement")


@_rke2("caas.server-machine")
def servers_are_machines_of_their_own(config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    machines = listed_machines(config.hosts)
    listed = {machine.name: f"{machine.address}:{machine.port}" for machine in machines}
    nodes = {node.name for node in config.nodes}
    taken = {place: f"hosts.machines, as {name}" for name, place in listed.items()}
    for position, server in enumerate(cluster.servers):
        path: Path = ("servers", position)
        if server.address is None:
            if server.host_key is not None:
                yield Wrong((*path, "host-key"), "key-without-address")
            if isinstance(config.hosts, ExistingHosts) and server.name not in listed:
                yield Wrong((*path, "address"), "no-machine")
            continue
        if server.host_key is None:
            yield Wrong((*path, "host-key"), "no-key")
        if server.name in nodes or server.name in listed:
            yield Wrong((*path, "name"), "name-taken")
        place = f"{server.address}:{server.port}"
        if place in taken:
            yield Wrong((*path, "address"), "address-taken", owner=taken[place])
        taken.setdefault(place, f"servers[{position}]")
    yield from named_twice("servers", [server.name for server in cluster.servers], "name-twice")


@_rke2("rke2.registration-address")
def servers_have_one_address(config: CaasConfig, cluster: Rke2Kubernetes) -> Wrongs:
    return rke2_checks.one_address(
        cluster.registration_address,
        {server.name: server.address for server in cluster.servers},
        simulated=not isinstance(config.hosts, ExistingHosts),
    )


_ITEMS = (
    *("HGX_FW_GPU_", "HGX_FW_NVSwitch_", "HGX_FW_BMC_", "HGX_FW_CPLD_", "HGX_FW_ERoT_"),
    *("HGX_FW_FPGA_", "HGX_FW_PCIeSwitch_", "HGX_FW_PCIeRetimer_"),
    *("HGX_InfoROM_GPU_", "HGX_InfoROM_NVSwitch_", "HGX_Driver_GPU_"),
)
"""Beginnings of ids in the firmware inventory of HGX BMCs (NVIDIA HGX Redfish API guide)."""
_CHAIN = "exposure.certificate.chain"
_CHARTS = {
    "nginx": ("rke2-ingress-nginx",),
    "traefik": ("rke2-traefik", "rke2-traefik-crd"),
}
"""By class of Ingress the charts of RKE2 that serve it."""


@rule("caas.golden-firmware-empty", "leases")
def full_recycling_has_something_to_compare_with(config: CaasConfig, leases: Leases) -> Wrongs:
    full = leases.recycle_policy is RecyclePolicy.FULL
    if full and isinstance(config.hosts, ExistingHosts) and not leases.golden_firmware.versions:
        yield Wrong("golden-firmware.versions")


@rule("caas.controllers-user-in-lab", "leases")
def the_controllers_account_is_there(config: CaasConfig, leases: Leases) -> Wrongs:
    if leases.user is not None and not isinstance(config.hosts, ExistingHosts):
        yield Wrong("user", got=show(leases.user))


@rule("caas.bmc-missing", "nodes")
def firmware_can_be_read(config: CaasConfig, node: Node) -> Wrongs:
    if config.leases.recycle_policy is not RecyclePolicy.FULL:
        return
    existing = isinstance(config.hosts, ExistingHosts)
    if existing and node.bmc is None:
        yield Wrong("bmc", "missing")
    if not existing and node.bmc is not None:
        yield Wrong("bmc", "in-lab", got=show(node.bmc.url))


@rule("caas.bmc-twice", each=["nodes"])
def each_machine_has_its_own_bmc(config: CaasConfig) -> Wrongs:
    stated = [(at, node.bmc.url) for at, node in enumerate(config.nodes) if node.bmc is not None]
    for again, first in repeats([url for _, url in stated]):
        yield Wrong(("nodes", stated[again][0], "bmc", "url"), first=stated[first][0])


@rule("caas.firmware-item-unknown", "leases", level=Level.WARN)
def golden_items_are_those_of_a_bmc(_config: CaasConfig, leases: Leases) -> Wrongs:
    for item in leases.golden_firmware.versions:
        if not any(item.startswith(known) or known.startswith(item) for known in _ITEMS):
            near = difflib.get_close_matches(item, _ITEMS, n=1)
            case = "near" if near else "unknown"
            path, got = ("golden-firmware", "versions", item), f"the key {show(item)}"
            meant = [one.rstrip("_") for one in near]
            yield Wrong(path, case, got=got, near=meant, known=_ITEMS)


@rule("caas.programs-image-missing")
def programs_have_an_image(config: CaasConfig) -> Wrongs:
    if not uses_lab(config) and config.programs.image is None:
        yield Wrong("programs.image", source=config.kubernetes.source)


@rule("caas.issuer-missing")
def api_knows_its_issuer(config: CaasConfig) -> Wrongs:
    if not uses_lab(config) and config.api.issuer is None:
        yield Wrong("api.issuer", source=config.kubernetes.source)


@rule("caas.api-without-tls")
def tenants_reach_the_api_over_tls(config: CaasConfig) -> Wrongs:
    if config.api.exposure is None and not uses_lab(config):
        yield Wrong("api.exposure")


@rule("caas.exposure-in-lab")
def the_lab_exposes_its_own_api(config: CaasConfig) -> Wrongs:
    exposure = config.api.exposure
    if isinstance(exposure, TlsExposure) and isinstance(config.kubernetes, LabKubernetes):
        yield Wrong("api.exposure", got=show(exposure.kind))


@rule("caas.proxies-unknown", "api")
def proxies_are_known(_config: CaasConfig, api: Api) -> Wrongs:
    if isinstance(api.exposure, ExternalExposure) and not api.proxies:
        yield Wrong("proxies")


@rule("caas.ingress-class-unserved")
def rke2_serves_the_ingress_class(config: CaasConfig) -> Wrongs:
    exposure, cluster = config.api.exposure, config.kubernetes
    if not isinstance(exposure, IngressExposure) or not isinstance(cluster, Rke2Kubernetes):
        return
    charts = _CHARTS.get(exposure.ingress_class, ())
    if missing := [chart for chart in charts if chart in cluster.disabled_charts]:
        kept = [chart for chart in cluster.disabled_charts if chart not in charts]
        yield Wrong("api.exposure.ingress-class", charts=" and ".join(missing), kept=kept)


@rule("caas.gateway-crds-missing")
def a_gateway_has_its_kinds(config: CaasConfig) -> Wrongs:
    made_here = isinstance(config.kubernetes, Rke2Kubernetes)
    if made_here and isinstance(config.api.exposure, GatewayExposure):
        yield Wrong("api.exposure.kind")


def _given(api: Api) -> tuple[str, certificate.Chain] | None:
    match api.exposure:
        case TlsExposure(host=host, certificate=GivenCertificate(chain=chain)):
            return host, certificate.read(chain)
    return None


@rule("caas.certificate-host", "api")
def the_certificate_is_for_the_host(_config: CaasConfig, api: Api) -> Wrongs:
    if (given := _given(api)) and not certificate.covers(given[1], given[0]):
        known = ", ".join(certificate.names(given[1])) or "no DNS name"
        yield Wrong(_CHAIN, got=show(given[0]), known=known)


@rule("caas.certificate-chain", "api")
def the_chain_is_in_order(_config: CaasConfig, api: Api) -> Wrongs:
    if (given := _given(api)) and not certificate.is_in_order(given[1]):
        yield Wrong(_CHAIN, got=HIDDEN)


@rule("caas.certificate-expired", "api")
def the_certificate_is_valid(_config: CaasConfig, api: Api) -> Wrongs:
    given = _given(api)
    if given is None:
        return
    now = datetime.datetime.now(datetime.UTC)
    begins, ends = certificate.begins(given[1]), certificate.ends(given[1])
    if now >= ends:
        yield Wrong(_CHAIN, "over", got=f"{ends:%Y-%m-%d}")
    elif now < begins:
        yield Wrong(_CHAIN, "not-yet", got=f"{begins:%Y-%m-%d}")
