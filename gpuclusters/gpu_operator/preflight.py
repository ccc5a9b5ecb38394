"""What is looked at in a cluster before the GPU Operator's release: read once, judged all at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.compat import containerd_places
from gpuclusters.compat.containerd_places import ContainerdDistribution
from gpuclusters.core.finding import Finding, Refused, blocked
from gpuclusters.core.ports import ClusterObjects
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.helm_release import Revision, installed_version, revisions
from gpuclusters.gpu_operator.keys import environment
from gpuclusters.gpu_operator.objects import ClusterInputs, Object, labels
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

_Found = tuple[str, ...]
"""Code, problem, and what to do where the code's own remedy does not say it all."""


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
        """Version of the release that is there; empty for none."""
        return installed_version(self.revisions)


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


def look(inputs: OperatorPreflightInputs, cluster: ClusterObjects) -> dict[str, Any]:
    """What the resource tells of the cluster as it is."""
    live = read(inputs, cluster)
    found = [finding.to_output() for finding in findings(live, inputs)]
    return {"findings": found, "installed": live.installed}


def require(inputs: OperatorPreflightInputs, cluster: ClusterObjects) -> dict[str, Any]:
    """The outputs, if nothing is in the way."""
    live = read(inputs, cluster)
    if found := findings(live, inputs):
        raise Refused(cluster.target, found)
    return {"findings": [], "installed": live.installed}


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
    found = (one for check in checks for one in check(live, inputs))
    return tuple(
        Finding(f"gpu-operator.{code}", problem, remedy[0])
        if remedy
        else blocked(f"gpu-operator.{code}", problem)
        for code, problem, *remedy in found
    )


def _release(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    last = live.revisions[-1] if live.revisions else None
    if last and last.is_pending:
        good = [r.number for r in live.revisions if r.status == "deployed"]
        back = (
            f"rollback {inputs.release} {good[-1]}"
            if good
            else f"uninstall {inputs.release} --no-hooks"
        )
        yield (
            "release-pending",
            f"release {inputs.release} is {last.status} since a run that was interrupted; Helm "
            'answers every other with "another operation is in progress"',
            f"make sure that no other run is at work, then `kubectl -n {inputs.namespace} delete "
            f"secret {last.secret}`, which loses nothing of the cluster, or "
            f"`helm -n {inputs.namespace} {back}`; then run `up` again",
        )
    if live.installed and (fault := objects.upgrade_fault(live.installed, inputs.version)):
        yield "version-jump", fault


def _namespace(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    level = labels(live.namespace).get(_ENFORCE)
    if live.namespace is not None and level != "privileged":
        yield (
            "namespace-not-privileged",
            f"namespace {inputs.namespace} exists and enforces {level or 'the level of the cluster'}; "
            "operands mount the host and would be refused under the CIS profile",
            f"`kubectl label namespace {inputs.namespace} --overwrite {_ENFORCE}=privileged`, and "
            "import it into the stack or delete it if it is empty",
        )


def _discovery(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    foreign = sorted(
        f"{body['metadata'].get('namespace')}/{body['metadata']['name']}"
        for body in live.daemon_sets
        if _is_discovery(body) and not inputs.owns(body)
    )
    if foreign and inputs.with_nfd:
        yield (
            "nfd-present",
            f"node feature discovery runs already ({', '.join(foreign)}); two of them label the "
            "same nodes",
        )
    if not foreign and not inputs.with_nfd:
        yield (
            "nfd-missing",
            "nfd.enabled is false and no node feature discovery runs in the cluster; the operator "
            'would call itself ready with reason "NFDLabelsMissing" and install nothing',
        )


def _rivals(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    for body in live.policies:
        if not inputs.owns(body):
            yield (
                "foreign-cluster-policy",
                f"ClusterPolicy {body['metadata']['name']} exists and belongs to {_owner(body)}; "
                "the operator serves the oldest and ignores all others",
            )
    for body in live.gpu_clusters:
        name = body["metadata"]["name"]
        yield "gpu-cluster", f"GPUCluster {name} exists; it cannot be beside a ClusterPolicy"
    for body in live.helm_charts:
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        target = (body.get("spec") or {}).get("targetNamespace") or namespace
        if name == inputs.release:
            yield (
                "helm-chart-resource",
                f"HelmChart {namespace}/{name} makes RKE2 install the operator in {target} too; "
                "the two would undo each other",
            )


def _definitions(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    for body in live.definitions:
        name, managers = body["metadata"]["name"], ("olm.managed", "operators.coreos.com/")
        if olm := [key for key in labels(body) if key.startswith(managers)]:
            yield (
                "definitions-managed",
                f"{name} is managed by the Operator Lifecycle Manager (label {olm[0]}), which puts "
                "its own version back",
            )
        spec, status = body.get("spec") or {}, body.get("status") or {}
        served = {v["name"] for v in spec.get("versions") or () if v.get("served")}
        if stale := sorted(set(status.get("storedVersions") or ()) - served):
            yield (
                "definitions-old",
                f"{name} stores objects as {', '.join(stale)}, which it serves no more; "
                f"{inputs.version or 'the new chart'} cannot take it over",
            )


def _nodes(live: Snapshot, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    for name in inputs.nodes:
        if name in live.nodes:
            yield from _node(name, live.nodes[name], inputs)
            if inputs.distribution is not None:
                yield from _packaged(name, live.nodes[name], inputs, inputs.distribution)
                yield from _left(name, live, inputs, inputs.distribution)
        else:
            there = ", ".join(sorted(live.nodes)) or "no node"
            yield "node-missing", f"node {name} is not in the cluster, which has {there}"


def _node(name: str, node: Object, inputs: OperatorPreflightInputs) -> Iterator[_Found]:
    runtime = ((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion", "")
    found = _CONTAINERD.match(runtime)
    if inputs.cdi and found and (int(found[1]), int(found[2])) < _CDI_CONTAINERD:
        yield (
            "containerd-too-old",
            f"node {name} runs {runtime}; CDI, which the operator uses since v25.10, needs "
            "containerd 2.0",
            *(
                ["update it, or write an operator.version before v25.10"]
                if inputs.distribution
                else []
            ),
        )
    if labels(node).get(objects.DEPLOY_LABEL) == "false":
        yield (
            "node-opted-out",
            f"node {name} has the label {objects.DEPLOY_LABEL}=false: no operand comes there",
            f"`kubectl label node {name} {objects.DEPLOY_LABEL}-`, or take it out of the pools",
        )
    kinds = [("operands", "daemonsets.tolerations", inputs.tolerations)]
    if inputs.with_nfd:
        worker = "node-feature-discovery.worker.tolerations"
        kinds.append(("the workers of NFD", worker, inputs.nfd_tolerations))
    for who, value, tolerated in kinds:
        if taints := [shown(taint) for taint in hard(node) if not tolerates(tolerated, taint)]:
            yield (
                "taint-not-tolerated",
                f"node {name} has {', '.join(taints)}, which {who} do not tolerate: "
                "its DaemonSets want 0 pods there, and nothing says so",
                f"add it to the value {value}, or remove the taint",
            )


def _packaged(
    name: str, node: Object, inputs: OperatorPreflightInputs, stated: ContainerdDistribution
) -> Iterator[_Found]:
    """Whether a node that was there is what is stated of it, as far as it shows that."""
    info: Object = (node.get("status") or {}).get("nodeInfo") or {}
    runtime, kubelet = (
        str(info.get(f"{key}Version", "")) for key in ("containerRuntime", "kubelet")
    )
    if runtime and not runtime.startswith("containerd://"):
        yield (
            "not-containerd",
            f"node {name} runs {runtime}, and what is derived here is for containerd",
        )
        return
    annotations: Object = node["metadata"].get("annotations") or {}
    shown = containerd_places.shown(kubelet, labels(node), annotations)
    meant = ContainerdDistribution.KUBEADM if stated is ContainerdDistribution.EGX else stated
    if shown not in (None, meant):
        yield (
            "distribution-differs",
            f"node {name} is of {shown} (kubelet {kubelet}), and {stated} is stated: the toolkit would look "
            "for containerd where it is not",
            f"write kubernetes.distribution: {shown}",
        )
    listens = annotations.get(containerd_places.place(meant).seen.annotation, "")
    listens = listens.removeprefix("unix://").replace("/var/run/", "/run/")
    if listens and listens != inputs.socket:
        yield (
            "socket-differs",
            f"the containerd of node {name} listens at {listens}, and the toolkit is told {inputs.socket}",
            f"add {{name: CONTAINERD_SOCKET, value: {listens}}} to operator.values.toolkit.env",
        )


def _left(
    name: str, live: Snapshot, inputs: OperatorPreflightInputs, stated: ContainerdDistribution
) -> Iterator[_Found]:
    """A toolkit that is no operator's of this cluster has told containerd of its runtimes."""
    if not inputs.configures or live.revisions or live.policies:
        return
    handlers = (live.nodes[name].get("status") or {}).get("runtimeHandlers") or ()
    names = [one["name"] for one in handlers if str(one.get("name", "")).startswith("nvidia")]
    if names:
        place = containerd_places.place(stated)
        files = dict.fromkeys((place.files(inputs.version or "v0"), place.config))
        yield (
            "toolkit-left",
            f"the containerd of node {name} has the runtimes {', '.join(names)} although no GPU Operator is "
            "installed: a toolkit of another release, or of the host, has left its file",
            f"take them out of {' or '.join(files)} and restart containerd; or keep that toolkit with "
            "operator.values.toolkit.enabled: false",
        )


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
