"""Row 30: every machine is there once, and has one place in the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.compat import gpu_products
from gpuclusters.config.fault import NOTHING, finding, show, show_values
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rke2_cluster import Rke2Config, machine_names
from gpuclusters.config.rke2_machines import gpu_pools, pool_of
from gpuclusters.config.rules.rule import listed_twice, rule, unexpected_names
from gpuclusters.core.finding import Finding, Level, Path


def known_machines(config: Rke2Config) -> tuple[str, ...] | None:
    """Names of the machines that there are; None in the lab, which makes what is named."""
    match config.hosts:
        case ExistingHosts():
            return tuple(machine.name for machine in config.hosts.machines)
        case GcpHosts():
            return config.hosts.machines
    return None


@rule(30, "rke2.adopted-unknown")
def adopted_machines_are_in_the_cluster(config: Rke2Config) -> Iterable[Finding]:
    yield from unexpected_names(("adopt", "machines"), config.adopt.machines, machine_names(config))


@rule(30, "rke2.machine-in-two-places", each=["pools"])
def nodes_have_names_of_their_own(config: Rke2Config) -> Iterable[Finding]:
    seen: dict[str, str] = {}
    for number, name in enumerate(config.servers):
        if name in seen:
            yield _twice(("servers", number), name, seen[name])
        seen.setdefault(name, f"servers[{number}]")
    placed: dict[str, str] = {}
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            if name in placed:
                yield _twice(("pools", number, "nodes", position), name, placed[name])
            placed.setdefault(name, f"pools[{number}].nodes[{position}]")


def _twice(path: Path, name: str, place: str) -> Finding:
    return finding(
        path,
        f"is named at {place} already",
        show(name),
        "name each machine once; one that is a server and carries GPUs is in servers and in one pool",
    )


@rule(30, "rke2.machine-unknown")
def machines_are_those_of_hosts(config: Rke2Config) -> Iterable[Finding]:
    known = known_machines(config)
    if known is None:
        return
    for path, name in _named(config):
        if name not in known:
            yield finding(
                path,
                "is none of the machines under hosts",
                show(name),
                f"write one of {show_values(known[:8])}{', …' if len(known) > 8 else ''}, or add it there",
            )


@rule(30, "rke2.machine-unused", level=Level.WARN)
def every_machine_has_a_place(config: Rke2Config) -> Iterable[Finding]:
    used = {name for _, name in _named(config)}
    for number, name in enumerate(known_machines(config) or ()):
        if name not in used:
            path: Path = ("hosts", "machines", number)
            yield finding(
                path if isinstance(config.hosts, ExistingHosts) else ("hosts", "groups"),
                "is neither a server nor in a pool",
                show(name),
                "name it under servers or in a pool, or remove it",
            )


def _named(config: Rke2Config) -> Iterator[tuple[Path, str]]:
    for number, name in enumerate(config.servers):
        yield ("servers", number), name
    for number, pool in enumerate(config.pools):
        for position, name in enumerate(pool.nodes):
            yield ("pools", number, "nodes", position), name


@rule(30, "rke2.host-twice")
def hosts_are_listed_once(config: Rke2Config) -> Iterable[Finding]:
    return listed_twice(config.hosts)


@rule(30, "rke2.pool-name", each=["pools"])
def pools_have_names_of_their_own(config: Rke2Config) -> Iterable[Finding]:
    seen: dict[str, int] = {}
    for number, pool in enumerate(config.pools):
        if pool.name in seen:
            yield finding(
                ("pools", number, "name"),
                f"is also that of pools[{seen[pool.name]}]",
                show(pool.name),
                "give every pool a name of its own",
            )
        seen.setdefault(pool.name, number)
        if not pool.nodes:
            yield finding(
                ("pools", number, "nodes"),
                "is empty",
                "[]",
                "name its machines, or remove the pool",
            )


@rule(30, "rke2.no-gpus")
def there_are_gpus(config: Rke2Config) -> Iterable[Finding]:
    if not gpu_pools(config):
        yield finding(
            ("pools",),
            "have no GPUs",
            show([pool.name for pool in config.pools]) if config.pools else NOTHING,
            "write gpu: {product: …, count: …} for the pool that has them",
        )


@rule(30, "rke2.pool-gpus", each=["pools"])
def pools_have_the_gpus_of_their_machines(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.hosts, GcpHosts):
        return
    for number, pool in enumerate(config.pools):
        for name in pool.nodes:
            if name not in config.hosts.machines:
                continue
            made = config.hosts.group_of(name).gpu
            there = None if made is None else (made.product, made.count)
            wanted = None if pool.gpu is None else (pool.gpu.product, pool.gpu.count)
            if there != wanted:
                yield finding(
                    ("pools", number, "gpu"),
                    f"is not what {name} is made with under hosts.groups, which is {_gpus(there)}",
                    _gpus(wanted),
                    "write the same in both places",
                )
                break


def _gpus(found: tuple[str, int] | None) -> str:
    return "nothing" if found is None else f"{found[1]} × {found[0]}"


@rule(30, "rke2.processor", each=["pools"])
def machines_have_processors_that_rke2_is_installed_for(config: Rke2Config) -> Iterable[Finding]:
    for number, pool in enumerate(config.pools):
        if pool.gpu is not None and gpu_products.product(pool.gpu.product).cpu != "amd64":
            yield finding(
                ("pools", number, "gpu", "product"),
                "is on an arm64 machine, and this version installs RKE2 for amd64",
                show(pool.gpu.product),
                "leave these machines out",
            )


@rule(30, "rke2.gpus-on-server", each=["pools"], level=Level.WARN)
def gpus_are_not_on_servers(config: Rke2Config) -> Iterable[Finding]:
    pools = pool_of(config)
    for number, name in enumerate(config.servers):
        if name in pools and pools[name].gpu is not None:
            alone = len(config.servers) == 1
            away = (
                "the API is away for a minute"
                if alone
                else "one member of etcd is away for a minute"
            )
            yield finding(
                ("servers", number),
                f"carries the GPUs of pool {pools[name].name}: when the toolkit restarts RKE2, {away}",
                show(name),
                "keep GPUs on machines that are no servers",
            )
