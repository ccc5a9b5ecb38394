"""Rules of rke2: releases fit together, containerd stays RKE2's own, the operator is let in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuclusters.compat import containerd_places, rke2_matrix
from gpuclusters.compat.containerd_places import (
    SETS_DEFAULT,
    ContainerdDistribution,
    ContainerdPlace,
)
from gpuclusters.compat.rke2_matrix import OperatingSystem, operator_major
from gpuclusters.compat.versions import release
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import RELEASES, DownloadedArtifacts, FileChart, LocalArtifacts
from gpuclusters.config.rke2_cluster import (
    FoundCluster,
    MadeCluster,
    NoMetrics,
    OperatorDriver,
    Pool,
    RancherMonitoring,
    Rke2Config,
)
from gpuclusters.config.rke2_plan import has_free_node, images, operator_spec, taints
from gpuclusters.config.rules.rule import Wrong, Wrongs, rule
from gpuclusters.core import codes
from gpuclusters.core.finding import Level, Path
from gpuclusters.gpu_operator import keys
from gpuclusters.gpu_operator.keys import at, environment
from gpuclusters.gpu_operator.values import Taint, registries, toleration
from gpuclusters.rke2 import releases
from gpuclusters.rke2.host_config import Cni

_VALUES: Path = ("operator", "values")


def _containerd(config: Rke2Config) -> tuple[int, ...] | None:
    """The containerd that the release of RKE2 brings; None if nobody has read about it, or it is there."""
    if not isinstance(config, MadeCluster):
        return None
    return rke2_matrix.containerd(releases.parse_version(config.version))


def _place(config: Rke2Config) -> ContainerdPlace:
    return containerd_places.place(operator_spec(config).distribution)


def _operator(config: Rke2Config) -> str:
    return f"GPU Operator {operator_major(config.operator.version)}"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


@rule("rke2.kubernetes-unsupported", section=MadeCluster)
def the_release_is_in_the_operators_matrix(config: MadeCluster) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    runs = (1, releases.parse_version(config.version).minor)

    def fits(first: str, last: str) -> bool:
        return release(first) <= runs <= release(last)

    if known is not None and not fits(*known.kubernetes):
        majors = rke2_matrix.operators().majors.items()
        fitting = " or ".join(name for name, one in majors if fits(*one.kubernetes))
        first, last = known.kubernetes
        said = {"kubernetes": _dotted(runs), "by": _operator(config), "fitting": fitting}
        yield Wrong("version", "other" if fitting else "none", first=first, last=last, **said)


@rule("rke2.containerd-unsupported", section=MadeCluster)
def its_containerd_is_one_that_the_operator_knows(config: MadeCluster) -> Wrongs:
    brings, known = _containerd(config), rke2_matrix.major(config.operator.version)
    if known is not None and brings is not None and known.cdi_default and brings < (2, 0):
        yield Wrong("version", containerd=_dotted(brings), by=_operator(config))


@rule("rke2.containerd-not-validated", level=Level.WARN, section=MadeCluster)
def its_containerd_is_in_the_operators_range(config: MadeCluster) -> Wrongs:
    brings, known = _containerd(config), rke2_matrix.major(config.operator.version)
    if known is None or brings is None:
        return
    first, last = map(release, known.containerd)
    if brings[:2] > last or (brings[:2] < first and not known.cdi_default):
        said = {"containerd": _dotted(brings), "by": _operator(config)}
        yield Wrong("version", validated=" to ".join(known.containerd), **said)


@rule("rke2.release-unknown", level=Level.WARN)
def releases_are_known(config: Rke2Config) -> Wrongs:
    if isinstance(config, MadeCluster) and _containerd(config) is None:
        yield Wrong("version", "rke2", table=rke2_matrix.matrix())
    table = rke2_matrix.operators()
    if config.operator.version not in table.releases:
        known = rke2_matrix.major(config.operator.version)
        case = "operator-patch" if known is not None else "operator-major"
        yield Wrong("operator.version", case, table=table)


@rule("rke2.operator-end-of-support", level=Level.WARN)
def the_operator_is_supported(config: Rke2Config) -> Wrongs:
    known, table = rke2_matrix.major(config.operator.version), rke2_matrix.operators()
    if known is not None and known.status == "ended":
        yield Wrong("operator.version", table=table, newest=list(table.releases)[-1])


def _systems(config: Rke2Config) -> Iterator[tuple[Path, OperatingSystem]]:
    if config.operating_system is not None:
        yield ("operating-system",), config.operating_system
    for number, pool in enumerate(config.pools):
        if pool.operating_system is not None:
            yield ("pools", number, "operating-system"), pool.operating_system


@rule("rke2.system-unsupported", each=["pools"])
def the_operating_system_is_in_the_operators_matrix(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    validated = (*known.operating_systems, *known.partner) if known is not None else ()
    for path, system in _systems(config) if known is not None else ():
        if system.family != "rocky" and system not in validated:
            yield Wrong(path, operator=_operator(config), validated=validated)


@rule("rke2.system-not-validated", each=["pools"], level=Level.WARN)
def somebody_validated_the_operating_system(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    for path, system in _systems(config):
        if (
            system.family == "rocky"
            and operator_spec(config).distribution is ContainerdDistribution.RKE2
        ):
            yield Wrong(path, "rocky")
        elif known is not None and system in known.partner:
            yield Wrong(path, "partner")


_DECIDED = "rke2.chart-value-twice"
"""Its cases are keys of the chart's values."""


@rule("rke2.chart-value-unknown")
def the_chart_reads_every_value(config: Rke2Config) -> Wrongs:
    values = config.operator.values
    for one in keys.problems(values, operator_major(config.operator.version)):
        got = _shown(values, one.path)
        path = (*_VALUES, *one.path)
        yield Wrong(path, "by-key", got=got, wrong=one.wrong, instead=one.instead)


def _shown(values: Mapping[str, object], path: tuple[str, ...]) -> str:
    """What was written there; a variable stands in a list, under its name."""
    found = at(values, ".".join(path))
    if found is None and len(path) > 1 and path[-2] == "env":
        entries = at(values, ".".join(path[:-1])) or ()
        found = next((e.get("value") for e in entries if e.get("name") == path[-1]), None)
    return show(found, path)


@rule(_DECIDED)
def values_are_not_decided_twice(config: Rke2Config) -> Wrongs:
    for key in codes.of(_DECIDED).cases:
        if at(config.operator.values, key) is not None:
            yield Wrong((*_VALUES, *key.split(".")), key)


_BREAKING, _NEEDLESS = "rke2.toolkit-containerd-config", "rke2.toolkit-old-variable"
"""Their cases are variables."""


def _variables(config: Rke2Config, code: str) -> Iterator[Wrong]:
    for name, value in environment(config.operator.values, "toolkit").items():
        if name in codes.of(code).cases:
            yield Wrong((*_VALUES, "toolkit", "env", name), name, got=show(value))


@rule(_BREAKING)
def the_toolkit_keeps_its_hands_off_containerd(config: Rke2Config) -> Wrongs:
    return _variables(config, _BREAKING) if _place(config).written else ()


@rule("rke2.toolkit-socket")
def the_toolkit_knows_containerd(config: Rke2Config) -> Wrongs:
    values, spec = config.operator.values, operator_spec(config)
    if at(values, "toolkit.env") is None or config.operator.nri_plugin:
        return
    stated = environment(values, "toolkit")
    told = _place(config).told(spec.version).variables(default_runtime=spec.default_runtime)
    for name, value in told.items():
        found, case = stated.get(name), "default" if name in SETS_DEFAULT else "place"
        case = "socket" if name == "CONTAINERD_SOCKET" else case
        if found is None:
            case = "no-socket" if case == "socket" else "missing"
        if found != value:
            row = {"name": name, "value": _quoted(value) if found is None else value}
            path = (*_VALUES, "toolkit", "env", name)
            yield Wrong(path, case, got=show(found), distribution=spec.distribution, **row)


def _quoted(value: str) -> str:
    return f'"{value}"' if value in ("true", "false") else value


@rule("rke2.default-runtime-not-read", section=FoundCluster)
def the_default_runtime_is_read(config: FoundCluster) -> Wrongs:
    if not config.kubernetes.default_runtime:
        return
    path, distribution = "kubernetes.default-runtime", config.kubernetes.distribution
    if config.operator.nri_plugin or _off(config, "toolkit.enabled"):
        yield Wrong(path, "no-toolkit")
    elif _place(config).written:
        yield Wrong(path, "written", distribution=distribution)


@rule("rke2.default-runtime-opens-gpus", level=Level.WARN, section=FoundCluster)
def the_default_runtime_gives_gpus_to_whoever_asks(config: FoundCluster) -> Wrongs:
    if config.kubernetes.default_runtime:
        yield Wrong("kubernetes.default-runtime")


@rule("rke2.labels-not-ours", "pools", section=FoundCluster)
def nodes_that_are_there_have_their_labels(_config: FoundCluster, pool: Pool) -> Wrongs:
    if pool.labels:
        yield Wrong("labels", got=show(sorted(pool.labels)))


@rule(_NEEDLESS, level=Level.WARN)
def variables_of_old_guides_are_gone(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    return _variables(config, _NEEDLESS) if known is None or known.cdi_default else ()


@rule("rke2.toolkit-folder")
def the_toolkit_is_where_rke2_looks(config: Rke2Config) -> Wrongs:
    if _place(config).written and at(config.operator.values, "toolkit.installDir") not in (
        None,
        "/usr/local/nvidia",
    ):
        yield Wrong((*_VALUES, "toolkit", "installDir"))


def _off(config: Rke2Config, key: str, *, nri: bool | None = None) -> bool:
    """Whether a part of the operator is switched off, and the NRI plugin is on or off as asked for."""
    plugin = nri is None or config.operator.nri_plugin is nri
    return plugin and at(config.operator.values, key) is False


_TOOLKIT, _CDI = "operator.values.toolkit.enabled", "operator.values.cdi.enabled"


@rule("rke2.toolkit-not-installed", level=Level.WARN)
def somebody_installs_the_toolkit(config: Rke2Config) -> Wrongs:
    if _off(config, "toolkit.enabled", nri=False):
        yield Wrong(_TOOLKIT)


@rule("rke2.cdi-off")
def cdi_stays_on(config: Rke2Config) -> Wrongs:
    if _off(config, "cdi.enabled", nri=True):
        yield Wrong(_CDI)


@rule("rke2.gpus-open-to-pods", level=Level.WARN)
def without_cdi_pods_can_take_all_gpus(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    if _off(config, "cdi.enabled") and (known is None or known.cdi_default):
        yield Wrong(_CDI)


@rule("rke2.nri-unsupported")
def the_nri_plugin_has_what_it_needs(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    if not config.operator.nri_plugin or known is None:
        return
    if not known.nri:
        yield Wrong("operator.nri-plugin", "operator", operator=_operator(config))
        return
    brings = _containerd(config)
    if not isinstance(config, MadeCluster) or brings is None:
        return
    if not any(_is_of(brings, release(one)) for one in known.nri):
        path, has = "operator.nri-plugin", _dotted(brings)
        yield Wrong(path, "containerd", needs=known.nri, version=config.version, containerd=has)


def _is_of(brings: tuple[int, ...], one: tuple[int, ...]) -> bool:
    """Whether a containerd is of a series; with a patch stated, of that patch or later."""
    return brings[:2] == one[:2] and (len(one) < 3 or brings >= one)


@rule("rke2.nri-without-toolkit")
def the_nri_plugin_runs_in_the_toolkit(config: Rke2Config) -> Wrongs:
    if _off(config, "toolkit.enabled", nri=True):
        yield Wrong(_TOOLKIT)


@rule("rke2.nri-experimental", level=Level.WARN)
def the_nri_plugin_is_experimental(config: Rke2Config) -> Wrongs:
    if config.operator.nri_plugin:
        yield Wrong("operator.nri-plugin")


RESERVED = ("kube-system", "kube-public", "kube-node-lease", "default")


@rule("rke2.namespace-taken")
def namespaces_are_ours(config: Rke2Config) -> Wrongs:
    for part in ("operator", "proof"):
        name = getattr(config, part).namespace
        if name in RESERVED or name.startswith("cattle-"):
            yield Wrong((part, "namespace"), "foreign")
    if config.operator.namespace == config.proof.namespace:
        yield Wrong("proof.namespace", "operator")


@rule("rke2.taint-not-tolerated")
def operands_tolerate_the_taints(config: Rke2Config) -> Wrongs:
    places = {
        "daemonsets.tolerations": "operands",
        "node-feature-discovery.worker.tolerations": "labels",
    }
    for key, case in places.items():
        stated = at(config.operator.values, key)
        if not isinstance(stated, list | tuple):
            continue
        for taint in taints(config):
            if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, stated):
                missing = [f"{name}: {text}" for name, text in toleration(taint).items()]
                got, said = f"a list of {len(stated)}", "{key}={value}:{effect}".format(**taint)
                yield Wrong(f"operator.values.{key}", case, got=got, taint=said, missing=missing)


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


@rule("rke2.all-nodes-tainted", level=Level.WARN, section=MadeCluster)
def there_is_a_node_for_everything_else(config: MadeCluster) -> Wrongs:
    if config.pools and not has_free_node(config):
        yield Wrong("pools", got=show([pool.name for pool in config.pools]))


@rule("rke2.selinux-system", section=MadeCluster)
def selinux_is_of_the_rhel_family(config: MadeCluster) -> Wrongs:
    system = config.operating_system
    if config.selinux and system is not None and system.family == "ubuntu":
        yield Wrong("selinux", value=system.value)


@rule("rke2.registry-unused", section=MadeCluster)
def passwords_are_for_registries_that_are_used(config: MadeCluster) -> Wrongs:
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
            yield Wrong(path, "address", got=show(name))
        elif name not in known:
            mirrors = sorted(endpoints | set(config.mirrors))
            yield Wrong(path, "unused", got=show(name), known=mirrors or sorted(public))


_ANY = "*"
Artifacts = DownloadedArtifacts | LocalArtifacts


@rule("rke2.air-gap-release", "artifacts", section=MadeCluster)
def rke2_comes_from_the_closed_network(
    config: MadeCluster, artifacts: DownloadedArtifacts | LocalArtifacts
) -> Wrongs:
    if not config.air_gap:
        return
    if isinstance(artifacts, DownloadedArtifacts):
        if artifacts.url == RELEASES:
            yield Wrong("url", "internet")
        return
    # An archive of all images has Canal; for another CNI its own has to come along.
    cni, names = Cni(config.cni.kind), set(artifacts.images)
    whole, core = "rke2-images.linux-amd64.tar.zst", "rke2-images-core.linux-amd64.tar.zst"
    if names.isdisjoint((whole, core)):
        wanted = whole if cni is Cni.CANAL else core
        yield Wrong("images", "rke2", wanted=wanted)
    if cni.images not in names and not (whole in names and cni is Cni.CANAL):
        yield Wrong("images", "cni", cni=cni, images=cni.images)


@rule("rke2.air-gap-chart", section=MadeCluster)
def charts_come_from_the_closed_network(config: MadeCluster) -> Wrongs:
    if not config.air_gap or isinstance(config.hosts, LabHosts):
        return
    charts: dict[str, object] = {"operator.chart": config.operator.chart}
    if not isinstance(config.metrics, NoMetrics):
        charts["metrics.chart"] = config.metrics.chart
    if isinstance(config.metrics, RancherMonitoring):
        charts["metrics.crd-chart"] = config.metrics.crd_chart
    for path, chart in charts.items():
        if not isinstance(chart, FileChart) and getattr(chart, "repository", None) is None:
            yield Wrong(path, got=NOTHING if chart is None else '"registry"')


@rule("rke2.air-gap-image", each=["pools"], section=MadeCluster)
def images_come_from_the_closed_network(config: MadeCluster) -> Wrongs:
    if not config.air_gap or _ANY in config.mirrors:
        return
    wanted = images(config)
    for registry in registries(wanted):
        if registry not in config.mirrors:
            its = [one.partition("/")[2] for one in wanted if one.startswith(f"{registry}/")]
            yield Wrong(("mirrors", registry), any=_ANY, its=its)


@rule("rke2.air-gap-packages", "driver", kind=OperatorDriver, section=MadeCluster)
def driver_containers_find_packages(config: MadeCluster, driver: OperatorDriver) -> Wrongs:
    if config.air_gap and driver.package_mirror is None:
        yield Wrong("package-mirror")
