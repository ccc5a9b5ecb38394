"""Rules of rke2: releases fit together, containerd stays RKE2's own, the operator is let in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import OperatingSystem, operator_major
from gpuclusters.compat.versions import release
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import RELEASES, DownloadedArtifacts, FileChart, LocalArtifacts
from gpuclusters.config.rke2_cluster import NoMetrics, OperatorDriver, RancherMonitoring, Rke2Config
from gpuclusters.config.rke2_plan import has_free_node, images, taints
from gpuclusters.config.rules.rule import Wrong, Wrongs, rule
from gpuclusters.core.finding import Level, Path
from gpuclusters.gpu_operator import keys
from gpuclusters.gpu_operator.keys import at, environment
from gpuclusters.gpu_operator.values import Taint, registries, toleration
from gpuclusters.rke2 import releases
from gpuclusters.rke2.host_config import Cni
from gpuclusters.rke2.releases import CONTAINERD_SOCKET

_VALUES: Path = ("operator", "values")


def _containerd(config: Rke2Config) -> tuple[int, ...] | None:
    """The containerd that the release of RKE2 brings; None if nobody has read about it."""
    return rke2_matrix.containerd(releases.parse_version(config.version))


def _operator(config: Rke2Config) -> str:
    return f"GPU Operator {operator_major(config.operator.version)}"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


@rule("rke2.kubernetes-unsupported")
def the_release_is_in_the_operators_matrix(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    runs = (1, releases.parse_version(config.version).minor)

    def fits(first: str, last: str) -> bool:
        return release(first) <= runs <= release(last)

    if known is not None and not fits(*known.kubernetes):
        majors = rke2_matrix.operators().majors.items()
        fitting = " or ".join(name for name, one in majors if fits(*one.kubernetes))
        other = f", or operator.version of {fitting}" if fitting else ""
        first, last = known.kubernetes
        by = _operator(config)
        wrong = f"is Kubernetes {_dotted(runs)}, and {by} was validated on {first} to {last}"
        yield Wrong("version", wrong, f"write a release of v{first} to v{last}{other}")


@rule("rke2.containerd-unsupported")
def its_containerd_is_one_that_the_operator_knows(config: Rke2Config) -> Wrongs:
    brings, known = _containerd(config), rke2_matrix.major(config.operator.version)
    if known is not None and brings is not None and known.cdi_default and brings < (2, 0):
        by = _operator(config)
        wrong = f"brings containerd {_dotted(brings)}; CDI, as {by} uses it, needs 2.0"
        yield Wrong("version", wrong)


@rule("rke2.containerd-not-validated", level=Level.WARN)
def its_containerd_is_in_the_operators_range(config: Rke2Config) -> Wrongs:
    brings, known = _containerd(config), rke2_matrix.major(config.operator.version)
    if known is None or brings is None:
        return
    first, last = map(release, known.containerd)
    if brings[:2] > last or (brings[:2] < first and not known.cdi_default):
        by = _operator(config)
        validated = " to ".join(known.containerd)
        wrong = f"has containerd {_dotted(brings)}, and {by} was validated with {validated}"
        yield Wrong("version", wrong)


@rule("rke2.release-unknown", level=Level.WARN)
def releases_are_known(config: Rke2Config) -> Wrongs:
    if _containerd(config) is None:
        wrong = f"is of a minor that was not read about here, as of {rke2_matrix.matrix().as_of}"
        remedy = "read its release notes for containerd, CNI and ingress before you apply it"
        yield Wrong("version", wrong, remedy)
    table = rke2_matrix.operators()
    if config.operator.version not in table.releases:
        known = rke2_matrix.major(config.operator.version)
        what = "a patch" if known is not None else "of a major release"
        wrong = f"is {what} that was not read about here, as of {table.as_of}"
        remedy = f"write one of {', '.join(table.releases)}, or read its release notes first"
        yield Wrong("operator.version", wrong, remedy)


@rule("rke2.operator-end-of-support", level=Level.WARN)
def the_operator_is_supported(config: Rke2Config) -> Wrongs:
    known, table = rke2_matrix.major(config.operator.version), rke2_matrix.operators()
    if known is not None and known.status == "ended":
        remedy = f"go on to {list(table.releases)[-1]}, by one major release at a time"
        yield Wrong("operator.version", f"gets no fixes any more, as of {table.as_of}", remedy)


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
            wrong = f"is none that {_operator(config)} was validated on"
            remedy = f"write one of {', '.join(validated)}, or another operator.version"
            yield Wrong(path, wrong, remedy)


@rule("rke2.system-not-validated", each=["pools"], level=Level.WARN)
def somebody_validated_the_operating_system(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    for path, system in _systems(config):
        if system.family == "rocky":
            wrong = "is in NVIDIA's matrix for plain Kubernetes, not for RKE2"
            yield Wrong(path, wrong, "write rhel, or know that a fault there is yours to find")
        elif known is not None and system in known.partner:
            wrong = "is validated by its vendor, on one release of Kubernetes and two GPUs"
            yield Wrong(path, wrong, "ask SUSE before you ask NVIDIA")


_DECIDED: Mapping[str, str] = {
    "driver.enabled": "write driver.source",
    "driver.version": "write driver.version, or driver.branch",
    "driver.usePrecompiled": "write driver.source: precompiled",
    "driver.kernelModuleType": "write driver.modules",
    "driver.repoConfig.configMapName": "write driver.package-mirror",
    "driver.nvidiaDriverCRD.enabled": "remove it: pools with drivers of their own have driver.source: host",
    "cdi.nriPluginEnabled": "write operator.nri-plugin",
    "nfd.enabled": "write operator.node-feature-discovery",
    "mig.strategy": "write sharing.strategy",
    "migManager.config": "write sharing.layouts, and pools[].mig",
    "devicePlugin.config": "write sharing: {kind: time-slicing, …} or mps",
    "dcgm.enabled": "write proof.level: from L2 on it is on",
    "dcgmExporter.config": "remove it: with metrics this program brings a list with ECC and throttling",
    "dcgmExporter.serviceMonitor.enabled": "write metrics.kind",
    "operator.upgradeCRD": "remove it: this program applies the definitions of every release before it",
    "operator.cleanupCRD": "remove it: with it, destroy waits for a job on a node that may be gone",
    "clusterPolicy.deployCR": "remove it: without a ClusterPolicy nothing is installed",
    "gpuCluster.deployCR": "remove it: DRA instead of the device plugin is not built in this version",
    "sandboxWorkloads.enabled": "remove it: GPUs for virtual machines are cluster-type caas",
    "platform.openshift": "remove it: this is RKE2",
}


@rule("rke2.chart-value-unknown")
def the_chart_reads_every_value(config: Rke2Config) -> Wrongs:
    values = config.operator.values
    for one in keys.problems(values, operator_major(config.operator.version)):
        yield Wrong((*_VALUES, *one.path), one.wrong, one.instead, _shown(values, one.path))


def _shown(values: Mapping[str, object], path: tuple[str, ...]) -> str:
    """What was written there; a variable stands in a list, under its name."""
    found = at(values, ".".join(path))
    if found is None and len(path) > 1 and path[-2] == "env":
        entries = at(values, ".".join(path[:-1])) or ()
        found = next((e.get("value") for e in entries if e.get("name") == path[-1]), None)
    return show(found, path)


@rule("rke2.chart-value-twice")
def values_are_not_decided_twice(config: Rke2Config) -> Wrongs:
    for key, instead in _DECIDED.items():
        if at(config.operator.values, key) is not None:
            path = (*_VALUES, *key.split("."))
            yield Wrong(path, "is decided by this configuration already", instead)


_BREAKING = {
    "CONTAINERD_CONFIG": (
        "points the toolkit at a file that RKE2 writes anew with every start: the node does not come back "
        "from its next reboot (NVIDIA/gpu-operator, issue 992)"
    ),
    "RUNTIME_CONFIG_SOURCE": (
        "makes the toolkit write a configuration of containerd that RKE2 does not read"
    ),
    "RUNTIME_DROP_IN_CONFIG": "names a drop-in that RKE2's containerd does not import",
}
_NEEDLESS = {
    "CONTAINERD_SET_AS_DEFAULT": "has no effect since v25.10, where CDI needs no default runtime",
    "CONTAINERD_RUNTIME_CLASS": "names a runtime class that workloads do not need since v25.10",
}


def _variables(config: Rke2Config, refused: Mapping[str, str]) -> Iterator[Wrong]:
    for name, value in environment(config.operator.values, "toolkit").items():
        if name in refused:
            path = (*_VALUES, "toolkit", "env", name)
            yield Wrong(path, refused[name], "remove it", show(value))


@rule("rke2.toolkit-containerd-config")
def the_toolkit_keeps_its_hands_off_containerd(config: Rke2Config) -> Wrongs:
    return _variables(config, _BREAKING)


@rule("rke2.toolkit-socket")
def the_toolkit_knows_the_socket(config: Rke2Config) -> Wrongs:
    values = config.operator.values
    if at(values, "toolkit.env") is None or config.operator.nri_plugin:
        return
    found = environment(values, "toolkit").get("CONTAINERD_SOCKET")
    wrong, remedy = "is not the socket of RKE2's containerd", f"write {CONTAINERD_SOCKET}"
    if found is None:
        wrong = 'is missing: the toolkit signals another socket, "error signaling containerd … no such file"'
        remedy = f"add {{name: CONTAINERD_SOCKET, value: {CONTAINERD_SOCKET}}}; a list here replaces ours"
    if found != CONTAINERD_SOCKET:
        path = (*_VALUES, "toolkit", "env", "CONTAINERD_SOCKET")
        yield Wrong(path, wrong, remedy, show(found))


@rule("rke2.toolkit-old-variable", level=Level.WARN)
def variables_of_old_guides_are_gone(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    return _variables(config, _NEEDLESS) if known is None or known.cdi_default else ()


@rule("rke2.toolkit-folder")
def the_toolkit_is_where_rke2_looks(config: Rke2Config) -> Wrongs:
    if at(config.operator.values, "toolkit.installDir") not in (None, "/usr/local/nvidia"):
        wrong = "is not where RKE2 looks for the runtime when it starts"
        yield Wrong((*_VALUES, "toolkit", "installDir"), wrong)


def _off(config: Rke2Config, key: str, *, nri: bool | None = None) -> bool:
    """Whether a part of the operator is switched off, and the NRI plugin is on or off as asked for."""
    plugin = nri is None or config.operator.nri_plugin is nri
    return plugin and at(config.operator.values, key) is False


_TOOLKIT, _CDI = "operator.values.toolkit.enabled", "operator.values.cdi.enabled"
_REFUSED = ("is off while operator.nri-plugin is true, which the chart refuses", "remove it")


@rule("rke2.toolkit-not-installed", level=Level.WARN)
def somebody_installs_the_toolkit(config: Rke2Config) -> Wrongs:
    if _off(config, "toolkit.enabled", nri=False):
        wrong = "is off: no GPU gets into a container unless every host has the toolkit"
        yield Wrong(_TOOLKIT, wrong)


@rule("rke2.cdi-off")
def cdi_stays_on(config: Rke2Config) -> Wrongs:
    if _off(config, "cdi.enabled", nri=True):
        yield Wrong(_CDI, *_REFUSED)


@rule("rke2.gpus-open-to-pods", level=Level.WARN)
def without_cdi_pods_can_take_all_gpus(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    if _off(config, "cdi.enabled") and (known is None or known.cdi_default):
        wrong = "is off: pods need a RuntimeClass, and NVIDIA_VISIBLE_DEVICES=all gives every GPU"
        yield Wrong(_CDI, wrong)


@rule("rke2.nri-unsupported")
def the_nri_plugin_has_what_it_needs(config: Rke2Config) -> Wrongs:
    known = rke2_matrix.major(config.operator.version)
    if not config.operator.nri_plugin or known is None:
        return
    if not known.nri:
        wrong = f"is not in {_operator(config)}"
        remedy = "write operator.version v26.3.0 or later, or remove it"
        yield Wrong("operator.nri-plugin", wrong, remedy)
        return
    brings = _containerd(config)
    if brings is not None and not any(_is_of(brings, release(one)) for one in known.nri):
        wrong = f"needs containerd {', '.join(known.nri)}, and {config.version} brings {_dotted(brings)}"
        yield Wrong("operator.nri-plugin", wrong, "write another version, or remove it")


def _is_of(brings: tuple[int, ...], one: tuple[int, ...]) -> bool:
    """Whether a containerd is of a series; with a patch stated, of that patch or later."""
    return brings[:2] == one[:2] and (len(one) < 3 or brings >= one)


@rule("rke2.nri-without-toolkit")
def the_nri_plugin_runs_in_the_toolkit(config: Rke2Config) -> Wrongs:
    if _off(config, "toolkit.enabled", nri=True):
        yield Wrong(_TOOLKIT, *_REFUSED)


@rule("rke2.nri-experimental", level=Level.WARN)
def the_nri_plugin_is_experimental(config: Rke2Config) -> Wrongs:
    if config.operator.nri_plugin:
        wrong = "is experimental, and pods with runtimeClassName: nvidia no longer start"
        yield Wrong("operator.nri-plugin", wrong)


RESERVED = ("kube-system", "kube-public", "kube-node-lease", "default")


@rule("rke2.namespace-taken")
def namespaces_are_ours(config: Rke2Config) -> Wrongs:
    for part in ("operator", "proof"):
        name = getattr(config, part).namespace
        if name in RESERVED or name.startswith("cattle-"):
            wrong = "is not this program's: it labels its namespaces, which profile: cis closes otherwise"
            yield Wrong((part, "namespace"), wrong, "write a namespace that this program makes")
    if config.operator.namespace == config.proof.namespace:
        wrong = "is that of the operator, whose pods may do what no other pod may"
        yield Wrong("proof.namespace", wrong, "write another one")


@rule("rke2.taint-not-tolerated")
def operands_tolerate_the_taints(config: Rke2Config) -> Wrongs:
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


@rule("rke2.all-nodes-tainted", level=Level.WARN)
def there_is_a_node_for_everything_else(config: Rke2Config) -> Wrongs:
    if config.pools and not has_free_node(config):
        wrong = "leave no node without a taint: the operator is made to tolerate them, and nothing else is"
        yield Wrong("pools", wrong, got=show([pool.name for pool in config.pools]))


@rule("rke2.selinux-system")
def selinux_is_of_the_rhel_family(config: Rke2Config) -> Wrongs:
    system = config.operating_system
    if config.selinux and system is not None and system.family == "ubuntu":
        wrong = f"is on, and {system.value} has no rke2-selinux"
        yield Wrong("selinux", wrong)


@rule("rke2.registry-unused")
def passwords_are_for_registries_that_are_used(config: Rke2Config) -> Wrongs:
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
Artifacts = DownloadedArtifacts | LocalArtifacts


@rule("rke2.air-gap-release", "artifacts")
def rke2_comes_from_the_closed_network(
    config: Rke2Config, artifacts: DownloadedArtifacts | LocalArtifacts
) -> Wrongs:
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


@rule("rke2.air-gap-chart")
def charts_come_from_the_closed_network(config: Rke2Config) -> Wrongs:
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


@rule("rke2.air-gap-image", each=["pools"])
def images_come_from_the_closed_network(config: Rke2Config) -> Wrongs:
    if not config.air_gap or _ANY in config.mirrors:
        return
    wanted = images(config)
    for registry in registries(wanted):
        if registry not in config.mirrors:
            its = [one.partition("/")[2] for one in wanted if one.startswith(f"{registry}/")]
            remedy = f"write a mirror for it, or for {_ANY}; it must have {', '.join(its)}"
            yield Wrong(("mirrors", registry), "is missing, and air-gap is true", remedy)


@rule("rke2.air-gap-packages", "driver", kind=OperatorDriver)
def driver_containers_find_packages(config: Rke2Config, driver: OperatorDriver) -> Wrongs:
    if config.air_gap and driver.package_mirror is None:
        wrong = "is missing, and air-gap is true: the driver container finds no kernel headers"
        yield Wrong("package-mirror", wrong)
