"""The values of the GPU Operator's chart that a cluster needs, derived from tables and from what is wanted.

Sources: RKE2's documentation of the operator (`CONTAINERD_SOCKET` alone, from v25.10 on), NVIDIA's
documentation of CDI, of MIG and of node tolerations, the chart's own templates. What is not derived is the
chart's default.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.compat import containerd_places, rke2_matrix
from gpuclusters.compat.containerd_places import ContainerdDistribution
from gpuclusters.compat.rke2_matrix import ModulesPolicy, OperatingSystem, operator_major, operators
from gpuclusters.compat.versions import release
from gpuclusters.core.model import merged
from gpuclusters.gpu_operator.keys import tree_of

GPU_TOLERATION: Mapping[str, Any] = {
    "key": "nvidia.com/gpu",
    "operator": "Exists",
    "effect": "NoSchedule",
}
"""What the chart tolerates by itself; a list of ours replaces it."""
CONTROL_PLANE_TOLERATION: Mapping[str, Any] = {
    "key": "node-role.kubernetes.io/control-plane",
    "operator": "Equal",
    "value": "",
    "effect": "NoSchedule",
}
SUSE_REPOSITORY = "registry.suse.com/third-party/nvidia"
"""SUSE's own driver containers, signed for Secure Boot (NVIDIA, partner validated configurations)."""
MANY_NODES = 300
"""From so many nodes on the operator needs more memory than the chart gives it (350Mi)."""
MANY_NODES_MEMORY = "1400Mi"
_ISOLATION = {
    "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": "false",
    "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS": "true",
}
"""Before CDI any pod could take all GPUs by an environment variable; this closes it (RKE2, GPU operators)."""

Taint = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerDriver:
    version: str
    """`580.178.04`, or a branch if it is precompiled."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    precompiled: bool = False
    repository: str | None = None
    package_mirror: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorSpec:
    version: str
    driver: ContainerDriver | None = None
    """None: the hosts have one."""
    systems: Sequence[OperatingSystem] = ()
    """Operating systems of the nodes with GPUs, as far as they are stated."""
    mig_strategy: str = "single"
    mig_reboot: bool = False
    taints: Sequence[Taint] = ()
    untainted: bool = True
    """Whether there is a node that the operator itself can run on."""
    node_feature_discovery: bool = True
    nri_plugin: bool = False
    selinux: bool = False
    host_engine: bool = False
    """Whether DCGM runs on its own, as its diagnostics need."""
    mig: bool = False
    """Whether GPUs are cut, so that the MIG manager runs."""
    scrape_interval_seconds: int | None = None
    nodes: int = 1
    distribution: ContainerdDistribution = ContainerdDistribution.RKE2
    default_runtime: bool = False
    """Whether NVIDIA's runtime becomes containerd's default."""


def values(spec: OperatorSpec, metrics: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All that differs from the chart's defaults, for this release."""
    chosen: dict[str, Any] = {
        "cdi": {
            "enabled": _has_cdi(spec.version),
            **({"nriPluginEnabled": True} if spec.nri_plugin else {}),
        },
        "driver": _driver(spec),
        "mig": {"strategy": spec.mig_strategy},
        "nfd": {"enabled": spec.node_feature_discovery},
        # The definitions are applied before every release by this program; the hook would apply them again
        # under another name, and needs a node that is free.
        "operator": {"upgradeCRD": False, "cleanupCRD": False},
        "dcgm": {"enabled": spec.host_engine},
    }
    # NRI changes nothing about containerd, and so has to know nothing about it.
    if not spec.nri_plugin:
        chosen["toolkit"] = {"env": _env(toolkit_environment(spec))}
    if not _has_cdi(spec.version):
        chosen["devicePlugin"] = {"env": _env({"DEVICE_LIST_STRATEGY": "volume-mounts"})}
    if spec.mig_reboot:
        chosen["migManager"] = {"env": _env({"WITH_REBOOT": "true"})}
    if spec.selinux and operator_major(spec.version) == "25.10":
        # Known issue of v25.10: with SELinux enforcing the MIG manager is not scheduled without it.
        chosen["gfd"] = {"env": _env({"USE_NODE_FEATURE_API": "true"})}
    chosen = merged(chosen, _tolerations(spec))
    if spec.nodes >= MANY_NODES:
        chosen["operator"]["resources"] = {"limits": {"memory": MANY_NODES_MEMORY}}
    if spec.scrape_interval_seconds is not None:
        interval = f"{spec.scrape_interval_seconds}s"
        chosen = merged(chosen, {"dcgmExporter": {"serviceMonitor": {"interval": interval}}})
    return _known(merged(chosen, metrics or {}), spec.version)


def toolkit_environment(spec: OperatorSpec) -> dict[str, str]:
    """What the toolkit is told: where containerd is, and what may not happen."""
    told = containerd_places.place(spec.distribution).told(spec.version)
    where = told.variables(default_runtime=spec.default_runtime)
    return where if _has_cdi(spec.version) else where | _ISOLATION


def _has_cdi(version: str) -> bool:
    known = operators().majors.get(operator_major(version))
    return True if known is None else known.cdi_default


def _driver(spec: OperatorSpec) -> dict[str, Any]:
    driver = spec.driver
    if driver is None:
        return {"enabled": False}
    chosen: dict[str, Any] = {"enabled": True, "version": driver.version}
    repository = driver.repository
    if driver.precompiled:
        chosen["usePrecompiled"] = True
        if repository is None and any(one.family == "sles" for one in spec.systems):
            repository = SUSE_REPOSITORY
    else:
        chosen["kernelModuleType"] = driver.modules.value
    if repository is not None:
        chosen["repository"] = repository
    if driver.package_mirror is not None:
        chosen["repoConfig"] = {"configMapName": driver.package_mirror}
    return chosen


def _tolerations(spec: OperatorSpec) -> dict[str, Any]:
    """Who tolerates the nodes' taints: lists of ours replace the chart's, so its own entries come along."""
    ours: list[dict[str, Any]] = []
    for taint in spec.taints:
        one = toleration(taint)
        if taint["effect"] != "PreferNoSchedule" and one != GPU_TOLERATION and one not in ours:
            ours.append(one)
    if not ours:
        return {}
    operands = [dict(GPU_TOLERATION), *ours]
    chosen: dict[str, Any] = {"daemonsets": {"tolerations": operands}}
    if spec.node_feature_discovery:
        # Without its labels no node counts as one with GPUs, whatever the operands tolerate.
        workers = [dict(CONTROL_PLANE_TOLERATION), *operands]
        chosen["node-feature-discovery"] = {"worker": {"tolerations": workers}}
    if not spec.untainted:
        everywhere = [dict(CONTROL_PLANE_TOLERATION), *operands]
        chosen["operator"] = {"tolerations": everywhere}
        if spec.node_feature_discovery:
            for part in ("master", "gc"):
                chosen["node-feature-discovery"][part] = {"tolerations": everywhere}
    return chosen


def toleration(taint: Taint) -> dict[str, Any]:
    """What tolerates exactly this taint."""
    if taint["key"] == GPU_TOLERATION["key"] and taint["effect"] == GPU_TOLERATION["effect"]:
        return dict(GPU_TOLERATION)
    value = {"value": taint["value"]} if taint["value"] else {}
    operator = "Equal" if value else "Exists"
    return {"key": taint["key"], "operator": operator, **value, "effect": taint["effect"]}


def _env(variables: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _known(chosen: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Without keys that this release does not read, such as a switch that came later."""
    tree = tree_of(operator_major(version))

    def kept(below: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in below.items():
            here = (*path, name)
            if here in tree:
                result[name] = value
            elif isinstance(value, Mapping) and (inner := kept(value, here)):
                result[name] = inner
        return result

    return kept(chosen, ())


def understands_auto(driver: str) -> bool:
    """Whether the container of a driver chooses the kernel modules by itself."""
    return release(driver) >= release(rke2_matrix.matrix().kernel_modules.auto_from)


KERNEL = "<kernel>"
"""In the tag of a precompiled driver: one for each kernel that `uname -r` shows on the nodes."""


def references(spec: OperatorSpec) -> tuple[str, ...]:
    """registry/name:tag of what a release pulls, in order; empty if nobody has read about the release."""
    known = operators().releases.get(spec.version)
    if known is None:
        return ()
    pulled = {
        "driver": False,
        "driver.manager": spec.driver is not None,
        "node-feature-discovery": spec.node_feature_discovery,
        "dcgm": spec.host_engine,
        "migManager": spec.mig,
    }
    found = {image for key, image in known.images.items() if pulled.get(key, True)}
    return tuple(sorted({*found, *_driver_images(spec, known.images["driver"])}))


def _driver_images(spec: OperatorSpec, default: str) -> Iterable[str]:
    """A tag ends with the operating system; of a precompiled driver the kernel comes before it."""
    driver = spec.driver
    if driver is None:
        return
    for system in spec.systems:
        suse = driver.precompiled and system.family == "sles"
        usual = SUSE_REPOSITORY if suse else default.rpartition("/")[0]
        kernel = f"-{KERNEL}" if driver.precompiled else ""
        yield f"{driver.repository or usual}/driver:{driver.version}{kernel}-{system.image_tag}"


def registries(references: Iterable[str]) -> tuple[str, ...]:
    """The registries that images come from: what a mirror has to stand in for."""
    return tuple(sorted({one.partition("/")[0] for one in references}))


_DAEMON_SETS = "node.kubernetes.io/"
"""The DaemonSet controller tolerates these by itself (not-ready, unreachable, pressure, unschedulable)."""

Object = Mapping[str, Any]


def hard(node: Object) -> list[Object]:
    """The taints of a node that keep pods of DaemonSets away."""
    effects = ("NoSchedule", "NoExecute")
    found = (node.get("spec") or {}).get("taints") or ()
    found = [taint for taint in found if taint.get("effect") in effects]
    return [taint for taint in found if not str(taint["key"]).startswith(_DAEMON_SETS)]


def tolerates(tolerations: Sequence[Object], taint: Object) -> bool:
    """As the scheduler compares them (Kubernetes documentation, taints and tolerations)."""
    about = [one for one in tolerations if one.get("effect") in (None, "", taint.get("effect"))]
    value = taint.get("value") or ""
    return any(
        one.get("key") in (None, "", taint["key"])
        if one.get("operator") == "Exists"
        else one.get("key") == taint["key"] and (one.get("value") or "") == value
        for one in about
    )


def shown(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"the taint {taint['key']}{value}:{taint['effect']}"
