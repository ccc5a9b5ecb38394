"""Row 42: namespaces, taints, SELinux and registries let the operator in."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_plan import has_free_node, taints
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import toleration

RESERVED = ("kube-system", "kube-public", "kube-node-lease", "default")
_ANY = "*"


@rule(42, "rke2.namespace-taken")
def namespaces_are_ours(config: Rke2Config) -> Iterable[Finding]:
    named: list[tuple[Path, str]] = [
        (("operator", "namespace"), config.operator.namespace),
        (("proof", "namespace"), config.proof.namespace),
    ]
    for path, name in named:
        if name in RESERVED or name.startswith("cattle-"):
            yield finding(
                path,
                "is not this program's: it labels its namespaces, which profile: cis closes otherwise",
                show(name),
                "write a namespace that this program makes, with the Pod Security level that its pods need",
            )
    if config.operator.namespace == config.proof.namespace:
        yield finding(
            ("proof", "namespace"),
            "is that of the operator, whose pods may do what no other pod may",
            show(config.proof.namespace),
            "write another one",
        )


@rule(42, "rke2.taint-not-tolerated")
def operands_tolerate_the_taints(config: Rke2Config) -> Iterable[Finding]:
    places = {
        "daemonsets.tolerations": "0 desired pods on them: no driver, no plugin, no GPU",
        "node-feature-discovery.worker.tolerations": "no label on them, so that they do not count",
    }
    for key, what in places.items():
        stated = at(config.operator.values, key)
        if not isinstance(stated, list | tuple):
            continue
        for taint in taints(config):
            if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, stated):
                yield finding(
                    ("operator", "values", *key.split(".")),
                    f"leave out taint {taint['key']}={taint['value']}:{taint['effect']} of a pool: {what}",
                    f"a list of {len(stated)}",
                    f"add {_spelled(toleration(taint))}, or remove the list: it is derived from the pools",
                )


def _tolerated(taint: object, stated: Iterable[object]) -> bool:
    if not isinstance(taint, dict):
        return False
    for one in stated:
        if not isinstance(one, dict):
            continue
        exists = one.get("operator") == "Exists"
        key = one.get("key")
        if (
            (key == taint["key"] or (key is None and exists))
            and one.get("effect") in (None, "", taint["effect"])
            and (exists or str(one.get("value", "")) == taint["value"])
        ):
            return True
    return False


def _spelled(one: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in one.items()) + "}"


@rule(42, "rke2.all-nodes-tainted", level=Level.WARN)
def there_is_a_node_for_everything_else(config: Rke2Config) -> Iterable[Finding]:
    if config.pools and not has_free_node(config):
        yield finding(
            ("pools",),
            "leave no node without a taint: the operator is made to tolerate them, and nothing else is",
            show([pool.name for pool in config.pools]),
            "add a pool without taints, take the taint from one, or write dedicated-servers: false",
        )


@rule(42, "rke2.selinux-system")
def selinux_is_of_the_rhel_family(config: Rke2Config) -> Iterable[Finding]:
    system = config.operating_system
    if config.selinux and system is not None and system.family == "ubuntu":
        yield finding(
            ("selinux",),
            f"is on, and {system.value} has no rke2-selinux",
            "true",
            "remove it: Ubuntu confines by AppArmor",
        )


@rule(42, "rke2.registry-unused")
def passwords_are_for_registries_that_are_used(config: Rke2Config) -> Iterable[Finding]:
    endpoints = {
        endpoint.partition("://")[2].partition("/")[0]
        for mirror in config.mirrors.values()
        for endpoint in mirror.endpoints
    }
    public = {"docker.io", "nvcr.io", "registry.k8s.io", "quay.io", "ghcr.io", "registry.suse.com"}
    known = endpoints | public | set(config.mirrors) | {config.system_default_registry or ""}
    for number, name in enumerate(config.registry_auth):
        if "://" in name or "/" in name:
            yield finding(
                ("registry-auth", number),
                "is an address or a path",
                show(name),
                "write host and port alone: registry.example.com:5000",
            )
        elif name not in known:
            yield finding(
                ("registry-auth", number),
                "is no registry that this configuration pulls from",
                show(name),
                f"write one of {', '.join(sorted(endpoints | set(config.mirrors)) or sorted(public))}",
            )
