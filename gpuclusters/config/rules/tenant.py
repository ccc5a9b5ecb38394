"""Rows 9 and 11: tenants' names, and what they may hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.plan import namespace, overhead_cpu, overhead_gib, share
from gpuclusters.config.rules.cluster import repeats
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.tenants import Tenant
from gpuclusters.core import naming
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.tenancy.model import quota_keys

_GPUS_PER_NODE = 8
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


@rule(9, "caas.tenant-name", each=["tenants"])
def tenant_names_are_labels(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        if not naming.is_dns_label(tenant.name):
            yield finding(
                ("tenants", position, "name"),
                "is not a name that Kubernetes accepts",
                show(tenant.name),
                "write at most 63 lower-case letters, digits and '-', with a letter or digit at "
                "both ends",
            )


@rule(9, "caas.tenant-twice", each=["tenants"])
def tenant_names_differ(config: CaasConfig) -> Iterable[Finding]:
    for position, first in repeats([tenant.name for tenant in config.tenants]):
        yield finding(
            ("tenants", position, "name"),
            f"is also the name of tenants[{first}]",
            show(config.tenants[position].name),
            "give every tenant a name of its own",
        )


def _namespace_path(position: int, tenant: Tenant) -> Path:
    return ("tenants", position, "name" if tenant.namespace is None else "namespace")


@rule(9, "caas.namespace-invalid", each=["tenants"])
def namespaces_are_valid(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        if tenant.namespace is None and not naming.is_dns_label(tenant.name):
            continue  # said of the name already
        name = namespace(config, tenant)
        if naming.is_dns_label(name):
            continue
        path = _namespace_path(position, tenant)
        if tenant.namespace is not None:
            yield finding(
                path,
                "is not a namespace that Kubernetes accepts",
                show(name),
                "write at most 63 lower-case letters, digits and '-', with a letter or digit at "
                "both ends",
            )
        elif len(name) > naming.LABEL_LENGTH:
            yield finding(
                path,
                f"gives a namespace of {len(name)} characters, of which Kubernetes accepts "
                f"{naming.LABEL_LENGTH}",
                show(name),
                "shorten the name or tenant-namespace-prefix, or state a namespace",
            )
        else:
            yield finding(
                ("tenant-namespace-prefix",),
                f"gives {tenant.name} a namespace that Kubernetes does not accept",
                show(name),
                "begin it with a letter or digit, and use lower-case letters, digits and '-'",
            )


@rule(9, "caas.namespace-taken", each=["tenants"])
def namespaces_are_free(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        name = namespace(config, tenant)
        if naming.is_reserved_namespace(name) or name in config.programs.accounts.namespaces:
            yield finding(
                _namespace_path(position, tenant),
                "gives the tenant a namespace that belongs to the cluster",
                show(name),
                "choose another, for example one that begins with tenant-",
            )


@rule(9, "caas.programs-namespace")
def programs_live_apart_from_tenants(config: CaasConfig) -> Iterable[Finding]:
    prefix = config.tenant_namespace_prefix
    taken = [
        name for name in config.programs.accounts.namespaces if prefix and name.startswith(prefix)
    ]
    if taken:
        yield finding(
            ("programs", "namespace"),
            f"begins with tenant-namespace-prefix ({prefix}), like the namespaces of tenants",
            show(config.programs.namespace),
            "leave it out, or write one that begins otherwise",
        )


@rule(9, "caas.namespace-shared", each=["tenants"])
def namespaces_differ(config: CaasConfig) -> Iterable[Finding]:
    names = [namespace(config, tenant) for tenant in config.tenants]
    for position, first in repeats(names):
        if config.tenants[position].name == config.tenants[first].name:
            continue  # said of the names already
        yield finding(
            _namespace_path(position, config.tenants[position]),
            f"gives the tenant the namespace of tenants[{first}]",
            show(names[position]),
            "give every tenant a namespace of its own",
        )


@rule(11, "caas.quota-not-enforced", each=["tenants"])
def quota_entries_are_enforced(config: CaasConfig) -> Iterable[Finding]:
    ours = quota_keys(config.device_access.resource_name)
    for position, tenant in enumerate(config.tenants):
        for key, value in tenant.extra_quota.items():
            path: Path = ("tenants", position, "extra-quota", key)
            yield from _quota_key(path, key, ours)
            if not _QUANTITY.fullmatch(value):
                yield finding(
                    path, "is not a quantity", show(value, path), 'write for example "100"'
                )


def _quota_key(path: Path, key: str, ours: frozenset[str]) -> Iterator[Finding]:
    bare = key.removeprefix("limits.")
    if key in ours:
        yield finding(
            path,
            "is set from the tenant's gpus, cpu, memory-gib, disk-gib, storage-gib and nfs.volumes",
            f"the key {show(key)}",
            "remove it, and change those",
        )
    elif "/" in bare and not bare.startswith(("requests.", "count/")) and _is_extended(bare):
        yield finding(
            path,
            "is accepted by Kubernetes and never enforced: extended resources count under "
            "requests. only",
            f"the key {show(key)}",
            f"write requests.{bare}",
        )


def _is_extended(key: str) -> bool:
    return ".storageclass.storage.k8s.io/" not in key and ".deviceclass.resource.k8s.io/" not in key


@rule(11, "caas.quota-too-small", each=["tenants"])
def quota_holds_one_pod(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        its = share(config, tenant)
        memory = its.default_container.memory_gib + overhead_gib(config)
        cpu = its.default_container.cpu + overhead_cpu(config)
        if its.total.memory_gib < memory:
            yield finding(
                ("tenants", position, "memory-gib"),
                f"is less than one default container and its VM's overhead, {memory} GiB",
                show(its.total.memory_gib),
                f"write {memory} or more, or a smaller default-container.memory-gib",
            )
        if its.total.disk_gib < its.default_container.disk_gib:
            yield finding(
                ("tenants", position, "disk-gib"),
                f"is less than one default container, {its.default_container.disk_gib} GiB",
                show(its.total.disk_gib),
                f"write {its.default_container.disk_gib} or more, or a smaller default-container.disk-gib",
            )
        if its.total.cpu < cpu:
            yield finding(
                ("tenants", position, "cpu"),
                f"is less than one default container and its VM's overhead, {cpu} cores",
                show(its.total.cpu),
                f"write {cpu} or more, or a smaller default-container.cpu",
            )


@rule(11, "caas.container-size", each=["tenants"])
def container_sizes_are_in_order(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        if tenant.max_container is None:
            continue
        its = share(config, tenant)
        for key, default, most, total, overhead in (
            (
                "memory-gib",
                its.default_container.memory_gib,
                its.max_container.memory_gib,
                its.total.memory_gib,
                overhead_gib(config),
            ),
            (
                "disk-gib",
                its.default_container.disk_gib,
                its.max_container.disk_gib,
                its.total.disk_gib,
                0,
            ),
            (
                "cpu",
                its.default_container.cpu,
                its.max_container.cpu,
                its.total.cpu,
                overhead_cpu(config),
            ),
        ):
            if most < default:
                yield finding(
                    ("tenants", position, "max-container", key),
                    f"is less than default-container.{key}, which is {default}",
                    show(most),
                    f"write {default} or more",
                )
            if most + overhead > total:
                does = f"and the VM's overhead of {overhead} do" if overhead else "does"
                yield finding(
                    ("tenants", position, "max-container", key),
                    f"{does} not fit into the quota of {total}",
                    show(most),
                    f"write {max(total - overhead, 1)} or less, or raise the tenant's {key}",
                )


@rule(11, "caas.gpus-above-cluster", each=["tenants"])
def gpu_quota_exists(config: CaasConfig) -> Iterable[Finding]:
    total = len(config.nodes) * _GPUS_PER_NODE
    for position, tenant in enumerate(config.tenants):
        if total and tenant.gpus > total:
            yield finding(
                ("tenants", position, "gpus"),
                f"is more than the cluster has, {total} on {len(config.nodes)} nodes",
                show(tenant.gpus),
                f"write {total} or less, or add nodes",
            )


@rule(11, "caas.size-above-quota", each=["tenants"])
def sizes_fit_the_quota(config: CaasConfig) -> Iterable[Finding]:
    for position, tenant in enumerate(config.tenants):
        for entry, size in enumerate(tenant.sizes or ()):
            if size > tenant.gpus:
                yield finding(
                    ("tenants", position, "sizes", entry),
                    f"is more than the tenant's gpus, which is {tenant.gpus}",
                    show(size),
                    "remove it, or raise gpus",
                )


@rule(11, "caas.gpus-overpromised", level=Level.WARN)
def gpu_quotas_add_up(config: CaasConfig) -> Iterable[Finding]:
    total = len(config.nodes) * _GPUS_PER_NODE
    promised = sum(tenant.gpus for tenant in config.tenants)
    single = any(tenant.gpus > total for tenant in config.tenants)
    if total and promised > total and not single:
        yield finding(
            ("tenants",),
            f"are promised more GPUs than the cluster has, {total}",
            f"{promised} in all",
            "lower quotas or add nodes, unless they may wait for each other",
        )
