"""Row 38: containerd is RKE2's own; what points the toolkit elsewhere breaks the node at its next reboot."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import operator_major
from gpuclusters.compat.versions import parse_release
from gpuclusters.config import rke2_checks
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.gpu_operator.keys import at, environment
from gpuclusters.rke2 import releases
from gpuclusters.rke2.releases import CONTAINERD_SOCKET

_ENV: Path = ("operator", "values", "toolkit", "env")
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


@rule(38, "rke2.default-runtime")
def no_default_runtime(config: Rke2Config) -> Iterable[Finding]:
    return rke2_checks.no_default_runtime(config, ())


@rule(38, "rke2.environment-variable")
def variables_are_those_of_a_proxy(config: Rke2Config) -> Iterable[Finding]:
    return rke2_checks.variables(config, ())


@rule(38, "rke2.toolkit-containerd-config")
def the_toolkit_keeps_its_hands_off_containerd(config: Rke2Config) -> Iterable[Finding]:
    for name, value in environment(config.operator.values, "toolkit").items():
        if name in _BREAKING:
            yield finding((*_ENV, name), _BREAKING[name], show(value), "remove it")


@rule(38, "rke2.toolkit-socket")
def the_toolkit_knows_the_socket(config: Rke2Config) -> Iterable[Finding]:
    if at(config.operator.values, "toolkit.env") is None or config.operator.nri_plugin:
        return
    found = environment(config.operator.values, "toolkit").get("CONTAINERD_SOCKET")
    if found is None:
        yield finding(
            (*_ENV, "CONTAINERD_SOCKET"),
            'is missing: the toolkit signals another socket, "error signaling containerd … no such file"',
            NOTHING,
            f"add {{name: CONTAINERD_SOCKET, value: {CONTAINERD_SOCKET}}}; a list here replaces ours",
        )
    elif found != CONTAINERD_SOCKET:
        yield finding(
            (*_ENV, "CONTAINERD_SOCKET"),
            "is not the socket of RKE2's containerd",
            show(found),
            f"write {CONTAINERD_SOCKET}",
        )


@rule(38, "rke2.toolkit-old-variable", level=Level.WARN)
def variables_of_old_guides_are_gone(config: Rke2Config) -> Iterable[Finding]:
    known = rke2_matrix.major(config.operator.version)
    if known is not None and not known.cdi_default:
        return
    for name, value in environment(config.operator.values, "toolkit").items():
        if name in _NEEDLESS:
            yield finding((*_ENV, name), _NEEDLESS[name], show(value), "remove it")


@rule(38, "rke2.toolkit-folder")
def the_toolkit_is_where_rke2_looks(config: Rke2Config) -> Iterable[Finding]:
    found = at(config.operator.values, "toolkit.installDir")
    if found is not None and found != "/usr/local/nvidia":
        yield finding(
            ("operator", "values", "toolkit", "installDir"),
            "is not where RKE2 looks for the runtime when it starts",
            show(found),
            "remove it: RKE2 puts /usr/local/nvidia/toolkit before its PATH, and no other folder",
        )


@rule(38, "rke2.toolkit-not-installed", level=Level.WARN)
def somebody_installs_the_toolkit(config: Rke2Config) -> Iterable[Finding]:
    off = at(config.operator.values, "toolkit.enabled") is False
    if off and not config.operator.nri_plugin:
        yield finding(
            ("operator", "values", "toolkit", "enabled"),
            "is off: no GPU gets into a container unless every host has nvidia-container-toolkit",
            "false",
            "remove it, or install the toolkit on all hosts before RKE2 starts on them",
        )


@rule(38, "rke2.cdi-off")
def cdi_stays_on(config: Rke2Config) -> Iterable[Finding]:
    if at(config.operator.values, "cdi.enabled") is not False:
        return
    if config.operator.nri_plugin:
        yield finding(
            ("operator", "values", "cdi", "enabled"),
            "is off while operator.nri-plugin is true, which the chart refuses",
            "false",
            "remove it",
        )


@rule(38, "rke2.gpus-open-to-pods", level=Level.WARN)
def without_cdi_pods_can_take_all_gpus(config: Rke2Config) -> Iterable[Finding]:
    known = rke2_matrix.major(config.operator.version)
    if at(config.operator.values, "cdi.enabled") is False and (known is None or known.cdi_default):
        yield finding(
            ("operator", "values", "cdi", "enabled"),
            "is off: pods need runtimeClassName: nvidia, and NVIDIA_VISIBLE_DEVICES=all gives them every GPU",
            "false",
            "remove it",
        )


@rule(38, "rke2.nri-unsupported")
def the_nri_plugin_has_what_it_needs(config: Rke2Config) -> Iterable[Finding]:
    if not config.operator.nri_plugin:
        return
    path: Path = ("operator", "nri-plugin")
    known = rke2_matrix.major(config.operator.version)
    if known is not None and not known.nri:
        yield finding(
            path,
            f"is not in GPU Operator {operator_major(config.operator.version)}",
            "true",
            "write operator.version v26.3.0 or later, or remove it",
        )
        return
    brings = rke2_matrix.containerd(releases.parse_version(config.version))
    fitting = [parse_release(text) or () for text in (known.nri if known is not None else ())]
    if brings is not None and fitting and not any(_is_of(brings, one) for one in fitting):
        yield finding(
            path,
            f"needs containerd {', '.join(known.nri if known else ())}, and {config.version} brings "
            f"{'.'.join(map(str, brings))}",
            "true",
            "write another version, or remove it",
        )


def _is_of(brings: tuple[int, ...], one: tuple[int, ...]) -> bool:
    """Whether a containerd is of a series; with a patch stated, of that patch or later."""
    return brings[:2] == one[:2] and (len(one) < 3 or brings >= one)


@rule(38, "rke2.nri-without-toolkit")
def the_nri_plugin_runs_in_the_toolkit(config: Rke2Config) -> Iterable[Finding]:
    if config.operator.nri_plugin and at(config.operator.values, "toolkit.enabled") is False:
        yield finding(
            ("operator", "values", "toolkit", "enabled"),
            "is off while operator.nri-plugin is true, which the chart refuses",
            "false",
            "remove it",
        )


@rule(38, "rke2.nri-experimental", level=Level.WARN)
def the_nri_plugin_is_experimental(config: Rke2Config) -> Iterable[Finding]:
    if config.operator.nri_plugin:
        yield finding(
            ("operator", "nri-plugin"),
            "is experimental, and pods with runtimeClassName: nvidia no longer start",
            "true",
            "remove it, unless RKE2 must not be restarted",
        )
