"""Rows 42 and 43: namespaces, taints and registries let the operator in; nothing comes from the internet."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.charts import FileChart
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2 import RELEASES, DownloadedArtifacts, LocalArtifacts
from gpuclusters.config.rke2_cluster import NoMetrics, OperatorDriver, RancherMonitoring, Rke2Config
from gpuclusters.config.rke2_plan import has_free_node, images, taints
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.core.finding import Level
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import Taint, registries, toleration
from gpuclusters.rke2.host_config import Cni

RESERVED = ("kube-system", "kube-public", "kube-node-lease", "default")


@rule(42, "rke2.namespace-taken")
def namespaces_are_ours(config: Rke2Config) -> Iterable[Wrong]:
    for part in ("operator", "proof"):
        name = getattr(config, part).namespace
        if name in RESERVED or name.startswith("cattle-"):
            yield Wrong(
                (part, "namespace"),
                "is not this program's: it labels its namespaces, which profile: cis closes otherwise",
                "write a namespace that this program makes, with the Pod Security level that its pods need",
            )
    if config.operator.namespace == config.proof.namespace:
        wrong = "is that of the operator, whose pods may do what no other pod may"
        yield Wrong("proof.namespace", wrong, "write another one")


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
                missing = ", ".join(f"{name}: {text}" for name, text in toleration(taint).items())
                wrong = f"leave out taint {taint['key']}={taint['value']}:{taint['effect']} of a pool: {what}"
                remedy = f"add {{{missing}}}, or remove the list: it is derived from the pools"
                yield Wrong(f"operator.values.{key}", wrong, remedy, f"a list of {len(stated)}")


def _tolerated(taint: Taint, stated: Iterable[object]) -> bool:
    """As the scheduler matches them: no key, with Exists, is every taint, and no effect is every effect."""
    for one in stated:
        if not isinstance(one, dict):
            continue
        exists, key = one.get("operator") == "Exists", one.get("key")
        if (
            (key == taint["key"] or (key is None and exists))
            and one.get("effect") in (None, "", taint["effect"])
            and (exists or str(one.get("value", "")) == taint["value"])
        ):
            return True
    return False


@rule(42, "rke2.all-nodes-tainted", level=Level.WARN)
def there_is_a_node_for_everything_else(config: Rke2Config) -> Iterable[Wrong]:
    if config.pools and not has_free_node(config):
        wrong = "leave no node without a taint: the operator is made to tolerate them, and nothing else is"
        yield Wrong("pools", wrong, got=show([pool.name for pool in config.pools]))


@rule(42, "rke2.selinux-system")
def selinux_is_of_the_rhel_family(config: Rke2Config) -> Iterable[Wrong]:
    system = config.operating_system
    if config.selinux and system is not None and system.family == "ubuntu":
        wrong = f"is on, and {system.value} has no rke2-selinux"
        yield Wrong("selinux", wrong)


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
        path = ("registry-auth", number)
        if "/" in name:
            remedy = "write host and port alone: registry.example.com:5000"
            yield Wrong(path, "is an address or a path", remedy, show(name))
        elif name not in known:
            wrong = "is no registry that this configuration pulls from"
            remedy = f"write one of {', '.join(sorted(endpoints | set(config.mirrors)) or sorted(public))}"
            yield Wrong(path, wrong, remedy, show(name))


_ANY = "*"


@rule(43, "rke2.air-gap-release", "artifacts")
def rke2_comes_from_the_closed_network(
    config: Rke2Config, artifacts: DownloadedArtifacts | LocalArtifacts
) -> Iterable[Wrong]:
    if not config.air_gap:
        return
    if isinstance(artifacts, DownloadedArtifacts):
        if artifacts.url == RELEASES:
            remedy = "write the address of your mirror, or artifacts.source: folder"
            yield Wrong("url", "is on the internet, and air-gap is true", remedy)
        return
    # An archive of all images has Canal; for another CNI its own has to come along.
    cni, names = Cni(config.cni.kind), set(artifacts.images)
    whole, core = "rke2-images.linux-amd64.tar.zst", "rke2-images-core.linux-amd64.tar.zst"
    if names.isdisjoint((whole, core)):
        wanted = whole if cni is Cni.CANAL else core
        yield Wrong("images", "have no archive with RKE2's own images", f"add {wanted}")
    if cni.images not in names and not (whole in names and cni is Cni.CANAL):
        wrong = f"have no archive with {cni}: every node would stay NotReady"
        yield Wrong("images", wrong, f"add {cni.images}")


@rule(43, "rke2.air-gap-chart")
def charts_come_from_the_closed_network(config: Rke2Config) -> Iterable[Wrong]:
    if not config.air_gap or isinstance(config.hosts, LabHosts):
        return
    charts: dict[str, object] = {"operator.chart": config.operator.chart}
    if not isinstance(config.metrics, NoMetrics):
        charts["metrics.chart"] = config.metrics.chart
    if isinstance(config.metrics, RancherMonitoring):
        charts["metrics.crd-chart"] = config.metrics.crd_chart
    for path, chart in charts.items():
        if not isinstance(chart, FileChart) and getattr(chart, "repository", None) is None:
            wrong = "is fetched from the internet, and air-gap is true"
            yield Wrong(path, wrong, got=NOTHING if chart is None else '"registry"')


@rule(43, "rke2.air-gap-image", each=["pools"])
def images_come_from_the_closed_network(config: Rke2Config) -> Iterable[Wrong]:
    if not config.air_gap or _ANY in config.mirrors:
        return
    wanted = images(config)
    for registry in registries(wanted):
        if registry not in config.mirrors:
            its = [one.partition("/")[2] for one in wanted if one.startswith(f"{registry}/")]
            remedy = f"write a mirror for it, or for {_ANY}; it must have {', '.join(its)}"
            yield Wrong(("mirrors", registry), "is missing, and air-gap is true", remedy)


@rule(43, "rke2.air-gap-packages", "driver", kind=OperatorDriver)
def driver_containers_find_packages(config: Rke2Config, driver: OperatorDriver) -> Iterable[Wrong]:
    if config.air_gap and driver.package_mirror is None:
        yield Wrong(
            "package-mirror",
            "is missing, and air-gap is true: the driver container finds no headers of the kernel",
        )
