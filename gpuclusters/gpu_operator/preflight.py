"""What is looked at in a cluster before the GPU Operator's release: read once, judged all at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.compat import containerd_places
from gpuclusters.compat.containerd_places import ContainerdDistribution
from gpuclusters.core.custom_resource import ClusterInputs
from gpuclusters.core.finding import Finding, blocked
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.helm_release import Revision, revisions
from gpuclusters.gpu_operator.keys import environment
from gpuclusters.gpu_operator.objects import Object, labels
from gpuclusters.gpu_operator.values import (
    CONTROL_PLANE_TOLERATION,
    GPU_TOLERATION,
    hard,
    shown,
    tolerates,
)
from gpuclusters.tenancy.objects import NAMESPACE, NODE

DEFINITIONS = ("clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
_ENFORCE = "pod-security.kubernetes.io/enforce"
_CONTAINERD = re.compile(r"containerd://v?(\d+)\.(\d+)")
_CDI_CONTAINERD = (2, 0)


class OperatorPreflightInputs(ClusterInputs):
    """Inputs of the look: what is going to be installed."""

    called = "gpu-operator-preflight"

    version: str = ""
    """The release that will be installed; empty where only the chart knows."""
    nodes: tuple[str, ...] = ()
    namespace: str = objects.NAMESPACE
    release: str = objects.RELEASE
    with_nfd: bool = True
    cdi: bool = True
    tolerations: tuple[dict[str, Any], ...] = ()
    """Of the operands, as in the chart's values."""
    nfd_tolerations: tuple[dict[str, Any], ...] = ()
    """Of the workers of node feature discovery."""
    values_digest: str = ""
    """Of the chart's values: another upgrade is another look."""
    distribution: ContainerdDistribution | None = None
    """What is stated of a cluster that was there; None of one that this program made."""
    socket: str = ""
    """Where the toolkit looks for containerd then."""
    configures: bool = False
    """Whether the toolkit writes a configuration that containerd reads then."""

    def owns(self, body: Object) -> bool:
        """Whether our release made an object."""
        return _owner(body) == f"Helm release {self.namespace}/{self.release}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    revisions: tuple[Revision, ...] = ()
    namespace: Object | None = None
    nodes: Mapping[str, Object] = field(default_factory=dict)
    daemon_sets: Sequence[Object] = ()
    policies: Sequence[Object] = ()
    gpu_clusters: Sequence[Object] = ()
    helm_charts: Sequence[Object] = ()
    definitions: Sequence[Object] = ()

    @property
    def installed(self) -> str:
        """Version of the chart that was installed last, whether it came up or not; empty for none."""
        there = ("deployed", "failed", "superseded")
        return next((r.chart_version for r in reversed(self.revisions) if r.status in there), "")


def read(inputs: OperatorPreflightInputs, cluster: ClusterObjects) -> Snapshot:
    definitions = (cluster.get(objects.CRD, name) for name in DEFINITIONS)
    return Snapshot(
        revisions=tuple(revisions(cluster, inputs.namespace, inputs.release)),
        namespace=cluster.get(NAMESPACE, inputs.namespace),
        nodes={str(node["metadata"]["name"]): node for node in cluster.list(NODE)},
        daemon_sets=cluster.list(objects.DAEMON_SET),
        policies=cluster.list(objects.CLUSTER_POLICY),
        gpu_clusters=cluster.list(objects.GPU_CLUSTER),
        helm_charts=cluster.list(objects.HELM_CHART),
        definitions=[body for body in definitions if body is not None],
    )


def asked(
    values: Mapping[str, Any], *, distribution: ContainerdDistribution | None
) -> dict[str, Any]:
    """What follows from the chart's values; `distribution` is stated of a cluster that was there."""
    operands, workers = tolerations(values)
    found: dict[str, Any] = {
        "with_nfd": bool((values.get("nfd") or {}).get("enabled", True)),
        "cdi": bool((values.get("cdi") or {}).get("enabled", True)),
        "tolerations": operands,
        "nfd_tolerations": workers,
    }
    if distribution is None:
        return found
    place = containerd_places.place(distribution)
    installs = (values.get("toolkit") or {}).get("enabled", True)
    nri = (values.get("cdi") or {}).get("nriPluginEnabled", False)
    return found | {
        "distribution": distribution.value,
        "socket": environment(values, "toolkit").get("CONTAINERD_SOCKET", place.socket),
        "configures": bool(installs and not nri and not place.written),
    }


def tolerations(values: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Tolerations of the operands and of the workers of NFD in the chart's values, with its defaults."""
    operands = (values.get("daemonsets") or {}).get("tolerations")
    worker = ((values.get("node-feature-discovery") or {}).get("worker") or {}).get("tolerations")
    default = [dict(GPU_TOLERATION)]
    return (
        default if operands is None else list(operands),
        [dict(CONTROL_PLANE_TOLERATION), *default] if worker is None else list(worker),
    )


def findings(live: Snapshot, inputs: OperatorPreflightInputs) -> tuple[Finding, ...]:
    """Everything that is in the way, in the order in which one would repair it."""
    checks = (_release, _namespace, _discovery, _rivals, _definitions, _nodes)
    return tuple(one for check in checks for one in check(live, inputs))


def _found(code: str, case: str = "", **values: Any) -> Finding:
    return blocked(f"gpu-operator.{code}", case=case, **values)


def _release(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    last = live.revisions[-1] if live.revisions else None
    if last and last.is_pending:
        good = [r.number for r in live.revisions if r.status == "deployed"]
        case = "upgrade" if good else "installation"
        yield _found("release-pending", case, inputs=inputs, last=last, good=good[-1:])
    if live.installed and (fault := objects.upgrade_fault(live.installed, inputs.version)):
        yield _found("version-jump", fault=fault)


def _namespace(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    level = labels(live.namespace).get(_ENFORCE)
    if live.namespace is not None and level != "privileged":
        enforced = level or "the level of the cluster"
        yield _found("namespace-not-privileged", name=inputs.namespace, level=enforced)


def _discovery(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    foreign = sorted(
        f"{body['metadata'].get('namespace')}/{body['metadata']['name']}"
        for body in live.daemon_sets
        if _is_discovery(body) and not inputs.owns(body)
    )
    if foreign and inputs.with_nfd:
        yield _found("nfd-present", foreign=foreign)
    if not foreign and not inputs.with_nfd:
        yield _found("nfd-missing")


def _rivals(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    for body in live.policies:
        if not inputs.owns(body):
            name = body["metadata"]["name"]
            yield _found("foreign-cluster-policy", name=name, owner=_owner(body))
    for body in live.gpu_clusters:
        yield _found("gpu-cluster", name=body["metadata"]["name"])
    for body in live.helm_charts:
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        into = (body.get("spec") or {}).get("targetNamespace") or namespace
        if name == inputs.release:
            yield _found("helm-chart-resource", namespace=namespace, name=name, into=into)


def _definitions(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    for body in live.definitions:
        name, managers = body["metadata"]["name"], ("olm.managed", "operators.coreos.com/")
        if olm := [key for key in labels(body) if key.startswith(managers)]:
            yield _found("definitions-managed", name=name, label=olm[0])
        spec, status = body.get("spec") or {}, body.get("status") or {}
        served = {v["name"] for v in spec.get("versions") or () if v.get("served")}
        if stale := sorted(set(status.get("storedVersions") or ()) - served):
            chart = inputs.version or "the new chart"
            yield _found("definitions-old", name=name, stale=stale, chart=chart)


def _nodes(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    for name in inputs.nodes:
        if name in live.nodes:
            yield from _node(name, live.nodes[name], inputs)
            if inputs.distribution is not None:
                yield from _packaged(name, live.nodes[name], inputs, inputs.distribution)
                yield from _left(name, live, inputs, inputs.distribution)
        else:
            there = sorted(live.nodes) or "no node"
            yield _found("node-missing", name=name, there=there)


def _node(name: str, node: Object, inputs: OperatorPreflightInputs) -> Iterator[Finding]:
    runtime = ((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion", "")
    found = _CONTAINERD.match(runtime)
    if inputs.cdi and found and (int(found[1]), int(found[2])) < _CDI_CONTAINERD:
        case = "found" if inputs.distribution else ""
        yield _found("containerd-too-old", case, name=name, runtime=runtime)
    if labels(node).get(objects.DEPLOY_LABEL) == "false":
        yield _found("node-opted-out", name=name, label=objects.DEPLOY_LABEL)
    kinds = [("operands", "daemonsets.tolerations", inputs.tolerations)]
    if inputs.with_nfd:
        worker = "node-feature-discovery.worker.tolerations"
        kinds.append(("the workers of NFD", worker, inputs.nfd_tolerations))
    for who, value, tolerated in kinds:
        if taints := [shown(taint) for taint in hard(node) if not tolerates(tolerated, taint)]:
            yield _found("taint-not-tolerated", name=name, taints=taints, who=who, value=value)


def _packaged(
    name: str, node: Object, inputs: OperatorPreflightInputs, stated: ContainerdDistribution
) -> Iterator[Finding]:
    """Whether a node that was there is what is stated of it, as far as it shows that."""
    info: Object = (node.get("status") or {}).get("nodeInfo") or {}
    runtime, kubelet = (
        str(info.get(f"{key}Version", "")) for key in ("containerRuntime", "kubelet")
    )
    if runtime and not runtime.startswith("containerd://"):
        yield _found("not-containerd", name=name, runtime=runtime)
        return
    annotations: Object = node["metadata"].get("annotations") or {}
    shown = containerd_places.shown(kubelet, labels(node), annotations)
    meant = ContainerdDistribution.KUBEADM if stated is ContainerdDistribution.EGX else stated
    if shown not in (None, meant):
        said = {"shown": shown, "stated": stated}
        yield _found("distribution-differs", name=name, kubelet=kubelet, **said)
    listens = annotations.get(containerd_places.place(meant).seen.annotation, "")
    listens = listens.removeprefix("unix://").replace("/var/run/", "/run/")
    if listens and listens != inputs.socket:
        yield _found("socket-differs", name=name, listens=listens, told=inputs.socket)


def _left(
    name: str, live: Snapshot, inputs: OperatorPreflightInputs, stated: ContainerdDistribution
) -> Iterator[Finding]:
    """A toolkit that is no operator's of this cluster has told containerd of its runtimes."""
    if not inputs.configures or live.revisions or live.policies:
        return
    handlers = (live.nodes[name].get("status") or {}).get("runtimeHandlers") or ()
    names = [one["name"] for one in handlers if str(one.get("name", "")).startswith("nvidia")]
    if names:
        place = containerd_places.place(stated)
        files = " or ".join(dict.fromkeys((place.files(inputs.version or "v0"), place.config)))
        yield _found("toolkit-left", name=name, runtimes=names, files=files)


def _is_discovery(body: Object) -> bool:
    containers = body["spec"]["template"]["spec"].get("containers") or ()
    return labels(body).get("app.kubernetes.io/name") == "node-feature-discovery" or any(
        "node-feature-discovery" in str(container.get("image")) for container in containers
    )


def _owner(body: Object) -> str:
    annotations = body["metadata"].get("annotations") or {}
    release = annotations.get("meta.helm.sh/release-name")
    namespace = annotations.get("meta.helm.sh/release-namespace")
    return f"Helm release {namespace}/{release}" if release else "no Helm release"
