"""Rules of gke: what Google refuses, or would make so that nothing works on it or everybody reaches it."""

from collections.abc import Mapping
from ipaddress import IPv4Network

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.config import gcp_rules, rke2_checks, training_rules
from gpuclusters.config.gke import GkeConfig, GkePool, GoogleDriver
from gpuclusters.config.rules.rule import Wrong, Wrongs, named_twice, rule
from gpuclusters.core.finding import Path
from gpuclusters.gcp import machine_types
from gpuclusters.usernetes import addresses

CONTROL_PLANE_PREFIX = 28


def _ranges(config: GkeConfig) -> Mapping[str, IPv4Network]:
    network = config.network
    return {
        "network.pods": network.pods,
        "network.services": network.services,
        "network.cidr": network.cidr,
        "network.control-plane": network.control_plane,
    }


def _pools(config: GkeConfig) -> list[tuple[Path, GkePool]]:
    return [(("pools", number), pool) for number, pool in enumerate(config.pools)]


@rule("gke.google-cloud-refuses")
def google_cloud_sells_the_machines(config: GkeConfig) -> Wrongs:
    for at, pool in _pools(config):
        yield from gcp_rules.machines(pool, at)
        yield from gcp_rules.zones_have([config.zone], pool, f"the pool {pool.name}", "zone")


@rule("gke.gpu-not-built")
def gpus_are_added_to_machines(config: GkeConfig) -> Wrongs:
    for at, pool in _pools(config):
        if pool.gpu and machine_types.attachable(pool.gpu.product) is None:
            yield Wrong((*at, "gpu", "product"))


@rule("gke.pool-twice")
def pools_are_told_apart(config: GkeConfig) -> Wrongs:
    return named_twice("pools", [pool.name for pool in config.pools])


@rule("gke.pool-sizes")
def a_pool_grows_and_does_not_shrink(config: GkeConfig) -> Wrongs:
    for at, pool in _pools(config):
        if pool.most_nodes is not None and pool.most_nodes <= pool.nodes:
            yield Wrong((*at, "most-nodes"), pool=pool)


@rule("gke.no-gpus")
def some_pool_has_gpus(config: GkeConfig) -> Wrongs:
    if not config.gpu_pools:
        yield Wrong("pools", got=", ".join(pool.name for pool in config.pools))


@rule("gke.no-system-pool")
def the_clusters_own_pods_find_a_node(config: GkeConfig) -> Wrongs:
    if len(config.gpu_pools) == len(config.pools):
        yield Wrong("pools", got=", ".join(pool.name for pool in config.pools))


@rule("gke.driver-without-gpu")
def the_driver_knows_the_gpus(config: GkeConfig) -> Wrongs:
    for at, pool in _pools(config):
        if pool.gpu is None or pool.driver is GoogleDriver.DEFAULT:
            continue
        product = pool.gpu.product
        generation = gpu_products.product(product).architecture
        if generation.is_before(Architecture.TURING):
            last = rke2_matrix.last_branch_for(generation)
            yield Wrong((*at, "driver"), last=last, product=product)


@rule("gke.networks-overlap")
def networks_of_the_cluster_do_not_meet(config: GkeConfig) -> Wrongs:
    known = {**gcp_rules.GOOGLE_RANGES, **_ranges(config)}
    for against, key in addresses.collisions(known):
        if key in _ranges(config):
            yield Wrong(key, against=against, network=known[against])


@rule("gke.network-size")
def networks_have_room(config: GkeConfig) -> Wrongs:
    nodes = sum(pool.most_nodes or pool.nodes for pool in config.pools)
    yield from rke2_checks.room(_ranges(config), nodes)
    network = config.network
    there = max(network.cidr.num_addresses - gcp_rules.RESERVED_ADDRESSES, 0)
    if there < nodes:
        yield Wrong("network.cidr", "cidr", there=there, nodes=nodes)
    if network.control_plane.prefixlen != CONTROL_PLANE_PREFIX:
        yield Wrong("network.control-plane", "control-plane", prefix=CONTROL_PLANE_PREFIX)
    for key, one in _ranges(config).items():
        if not one.is_private:
            yield Wrong(key, "public")


@rule("gke.api-ranges")
def few_reach_the_api(config: GkeConfig) -> Wrongs:
    for number, network in enumerate(config.api_ranges):
        if gcp_rules.is_wide(network):
            yield Wrong(("api-ranges", number))


TRAINING = training_rules.rules("gke")
