"""Rows 42 and 43: namespaces, taints and registries let the operator in; nothing comes from the internet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.config.charts import FileChart
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2 import RELEASES, DownloadedArtifacts, LocalArtifacts
from gpuclusters.config.rke2_cluster import NoMetrics, OperatorDriver, RancherMonitoring, Rke2Config
from gpuclusters.config.rke2_plan import has_free_node, images, taints
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import registries, toleration
from gpuclusters.rke2.host_config import Cni

RESERVED = ("kube-system", "kube-public", "kube-node-lease", "default")


@rule(42, "rke2.namespace-taken")
def namespaces_are_ours(config: Rke2Config) -> Iterable[Wrong]:
    named: list[tuple[Path, str]] = [
        (("operator", "namespace"), config.operator.namespace),
        (("proof", "namespace"), config.proof.namespace),
    ]
    for path, name in named:
        if name in RESERVED or name.startswith("cattle-"):
            yield Wrong(
                path,
                "is not this program's: it labels its namespaces, which profile: cis closes otherwise",
                "write a namespace that this program makes, with the Pod Security level that its pods need",
                show(name),
            )
    if config.operator.namespace == config.proof.namespace:
        yield Wrong(
            "proof.namespace",
            "is that of the operator, whose pods may do what no other pod may",
            "write another one",
        )


@rule(42, "rke2.taint-not-tolerated")
def operands_tolerate_the_taints(config: Rke2Config) -> Iterable[Wrong]:
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
                yield Wrong(
                    ("operator", "values", *key.split(".")),
                    f"leave out taint {taint['key']}={taint['value']}:{taint['effect']} of a pool: {what}",
                    f"add {_spelled(toleration(taint))}, or remove the list: it is derived from the pools",
                    f"a list of {len(stated)}",
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
def there_is_a_node_for_everything_else(config: Rke2Config) -> Iterable[Wrong]:
    if config.pools and not has_free_node(config):
        yield Wrong(
            "pools",
            "leave no node without a taint: the operator is made to tolerate them, and nothing else is",
            "add a pool without taints, take the taint from one, or write dedicated-servers: false",
            show([pool.name for pool in config.pools]),
        )


@rule(42, "rke2.selinux-system")
def selinux_is_of_the_rhel_family(config: Rke2Config) -> Iterable[Wrong]:
    system = config.operating_system
    if config.selinux and system is not None and system.family == "ubuntu":
        yield Wrong(
            "selinux",
            f"is on, and {system.value} has no rke2-selinux",
            "remove it: Ubuntu confines by AppArmor",
        )


@rule(42, "rke2.registry-unused")
def passwords_are_for_registries_that_are_used(config: Rke2Config) -> Iterable[Wrong]:
    endpoints = {
        endpoint.partition("://")[2].partition("/")[0]
        for mirror in config.mirrors.values()
        for endpoint in mirror.endpoints
    }
    public = {"docker.io", "nvcr.io", "registry.k8s.io", "quay.io", "ghcr.io", "registry.suse.com"}
    known = endpoints | public | set(config.mirrors) | {config.system_default_registry or ""}
    for number, name in enumerate(config.registry_auth):
        if "://" in name or "/" in name:
            yield Wrong(
                ("registry-auth", number),
                "is an address or a path",
                "write host and port alone: registry.example.com:5000",
                show(name),
            )
        elif name not in known:
            yield Wrong(
                ("registry-auth", number),
                "is no registry that this configuration pulls from",
                f"write one of {', '.join(sorted(endpoints | set(config.mirrors)) or sorted(public))}",
                show(name),
            )


_ANY = "*"


@rule(43, "rke2.air-gap-release")
def rke2_comes_from_the_closed_network(config: Rke2Config) -> Iterable[Wrong | Finding]:
    if not config.air_gap:
        return
    if isinstance(config.artifacts, DownloadedArtifacts):
        if config.artifacts.url == RELEASES:
            yield Wrong(
                "artifacts.url",
                "is on the internet, and air-gap is true",
                "write the address of your mirror, or artifacts.source: folder",
            )
        return
    yield from _images(config, config.artifacts)


def _images(config: Rke2Config, artifacts: LocalArtifacts) -> Iterator[Finding]:
    """An archive of all images has Canal; for another CNI its own has to come along."""
    cni = Cni(config.cni.kind)
    whole = "rke2-images.linux-amd64.tar.zst"
    core = "rke2-images-core.linux-amd64.tar.zst"
    names = set(artifacts.images)
    if whole not in names and core not in names:
        wanted = whole if cni is Cni.CANAL else core
        yield finding(
            ("artifacts", "images"),
            "have no archive with RKE2's own images",
            show(list(artifacts.images)),
            f"add {wanted}",
        )
    if cni.images not in names and not (whole in names and cni is Cni.CANAL):
        yield finding(
            ("artifacts", "images"),
            f"have no archive with {cni}: every node would stay NotReady",
            show(list(artifacts.images)),
            f"add {cni.images}",
        )


@rule(43, "rke2.air-gap-chart")
def charts_come_from_the_closed_network(config: Rke2Config) -> Iterable[Wrong]:
    if not config.air_gap or isinstance(config.hosts, LabHosts):
        return
    charts: list[tuple[Path, object]] = [(("operator", "chart"), config.operator.chart)]
    if not isinstance(config.metrics, NoMetrics):
        charts.append((("metrics", "chart"), config.metrics.chart))
    if isinstance(config.metrics, RancherMonitoring):
        charts.append((("metrics", "crd-chart"), config.metrics.crd_chart))
    for path, chart in charts:
        if isinstance(chart, FileChart) or getattr(chart, "repository", None) is not None:
            continue
        yield Wrong(
            path,
            "is fetched from the internet, and air-gap is true",
            "write {source: file, path: charts/….tgz, sha256: …}, or repository: with that of your own",
            NOTHING if chart is None else '"registry"',
        )


@rule(43, "rke2.air-gap-image", each=["pools"])
def images_come_from_the_closed_network(config: Rke2Config) -> Iterable[Wrong]:
    if not config.air_gap or _ANY in config.mirrors:
        return
    wanted = images(config)
    for registry in registries(wanted):
        if registry not in config.mirrors:
            yield Wrong(
                ("mirrors", registry),
                "is missing, and air-gap is true",
                f"write a mirror for it, or for {_ANY}; it must have "
                f"{', '.join(one.partition('/')[2] for one in wanted if one.startswith(f'{registry}/'))}",
            )


@rule(43, "rke2.air-gap-packages")
def driver_containers_find_packages(config: Rke2Config) -> Iterable[Wrong]:
    if (
        config.air_gap
        and isinstance(config.driver, OperatorDriver)
        and config.driver.package_mirror is None
    ):
        yield Wrong(
            "driver.package-mirror",
            "is missing, and air-gap is true: the driver container finds no headers of the kernel",
            "write the ConfigMap with your package sources, or driver.source: host or precompiled",
        )
