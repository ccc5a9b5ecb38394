"""The checks before the GPU Operator's release, each with what was read, what to do and its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuclusters.domain.helm_release import Revision, installed_version
from gpuclusters.gpu_operator.objects import DEPLOY_LABEL, upgrade_fault
from gpuclusters.gpu_operator.values import hard, shown, tolerates

DEFINITIONS: Final = ("clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
_ENFORCE = "pod-security.kubernetes.io/enforce"
_CONTAINERD = re.compile(r"containerd://v?(\d+)\.(\d+)")
_CDI_CONTAINERD = (2, 0)
_LIFE_CYCLE = "NVIDIA GPU Operator documentation, life cycle policy"
_INSTALL = "NVIDIA GPU Operator documentation, getting started"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is going to be installed."""

    version: str
    nodes: tuple[str, ...]
    namespace: str
    release: str
    with_nfd: bool = True
    cdi: bool = True
    tolerations: Sequence[Object] = ()
    nfd_tolerations: Sequence[Object] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the cluster has."""

    revisions: tuple[Revision, ...] = ()
    namespace: Object | None = None
    nodes: Mapping[str, Object] = field(default_factory=dict)
    daemon_sets: tuple[Object, ...] = ()
    policies: tuple[Object, ...] = ()
    gpu_clusters: tuple[Object, ...] = ()
    helm_charts: tuple[Object, ...] = ()
    definitions: tuple[Object, ...] = ()

    @property
    def installed(self) -> str:
        """Version of the release that is there."""
        return installed_version(self.revisions)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is in the way."""

    name: str
    read: str
    remedy: str
    source: str

    @property
    def line(self) -> str:
        """All that is needed, in one line."""
        return f"gpu-operator.{self.name}: {self.read}; {self.remedy}"

    @property
    def text(self) -> str:
        """All of it, in a few lines."""
        return (
            f"  gpu-operator.{self.name}: {self.read}\n"
            f"    do: {self.remedy}\n"
            f"    source: {self.source}"
        )


def judge(facts: Facts, plan: Plan) -> tuple[Finding, ...]:
    """Everything that is in the way, in the order in which one would repair it."""
    return tuple(finding for check in _CHECKS for finding in check(facts, plan))


def _pending(facts: Facts, plan: Plan) -> Iterator[Finding]:
    stuck = [revision for revision in facts.revisions[-1:] if revision.is_pending]
    for revision in stuck:
        others = [r for r in facts.revisions if r.status == "deployed"]
        back = (
            f"`helm -n {plan.namespace} rollback {plan.release} {others[-1].number}`"
            if others
            else f"`helm -n {plan.namespace} uninstall {plan.release} --no-hooks`"
        )
        yield Finding(
            "release-pending",
            f"release {plan.release} is {revision.status} since a run that was interrupted; Helm "
            'answers every other with "another operation is in progress"',
            f"make sure that no other run is at work, then `kubectl -n {plan.namespace} delete "
            f"secret {revision.secret}`, which loses nothing of the cluster, or {back}; then run "
            "`up` again",
            "pulumi/pulumi-kubernetes#2054",
        )


def _upgrade(facts: Facts, plan: Plan) -> Iterator[Finding]:
    fault = upgrade_fault(facts.installed, plan.version) if facts.installed else ""
    if fault:
        yield Finding(
            "version-jump", fault, "write the next version, and go on from there", _LIFE_CYCLE
        )


def _namespace(facts: Facts, plan: Plan) -> Iterator[Finding]:
    if facts.namespace is None:
        return
    level = (facts.namespace["metadata"].get("labels") or {}).get(_ENFORCE)
    if level != "privileged":
        yield Finding(
            "namespace-not-privileged",
            f"namespace {plan.namespace} exists and enforces {level or 'the level of the cluster'}; "
            "operands mount the host and would be refused under the CIS profile",
            f"`kubectl label namespace {plan.namespace} --overwrite {_ENFORCE}=privileged`, and "
            "import it into the stack or delete it if it is empty",
            "RKE2 documentation, CIS hardening guide; " + _INSTALL,
        )


def _discovery(facts: Facts, plan: Plan) -> Iterator[Finding]:
    foreign = sorted(
        f"{body['metadata'].get('namespace')}/{body['metadata']['name']}"
        for body in facts.daemon_sets
        if _is_discovery(body) and not _is_ours(body, plan)
    )
    if foreign and plan.with_nfd:
        yield Finding(
            "nfd-present",
            f"node feature discovery runs already ({', '.join(foreign)}); two of them label the "
            "same nodes",
            "set the value nfd.enabled to false, or remove the other one",
            _INSTALL,
        )
    if not foreign and not plan.with_nfd:
        yield Finding(
            "nfd-missing",
            "nfd.enabled is false and no node feature discovery runs in the cluster; the operator "
            'would call itself ready with reason "NFDLabelsMissing" and install nothing',
            "leave nfd.enabled out, or install node feature discovery first",
            "NVIDIA/gpu-operator v26.7.0, internal/conditions/consts.go",
        )


def _policies(facts: Facts, plan: Plan) -> Iterator[Finding]:
    for body in facts.policies:
        if not _is_ours(body, plan):
            yield Finding(
                "foreign-cluster-policy",
                f"ClusterPolicy {body['metadata']['name']} exists and belongs to "
                f"{_owner(body)}; the operator serves the oldest and ignores all others",
                "remove the other installation of the operator, or keep it and leave ours out",
                "NVIDIA/gpu-operator v26.7.0, controllers/clusterpolicy_controller.go",
            )
    for body in facts.gpu_clusters:
        yield Finding(
            "gpu-cluster",
            f"GPUCluster {body['metadata']['name']} exists; ClusterPolicy and GPUCluster cannot "
            "co-exist",
            "delete it, after moving its workloads off dynamic resource allocation",
            "NVIDIA/gpu-operator v26.7.0, controllers/clusterpolicy_controller.go",
        )


def _helm_charts(facts: Facts, plan: Plan) -> Iterator[Finding]:
    for body in facts.helm_charts:
        metadata = body["metadata"]
        target = (body.get("spec") or {}).get("targetNamespace") or metadata.get("namespace")
        if metadata["name"] == plan.release:
            yield Finding(
                "helm-chart-resource",
                f"HelmChart {metadata.get('namespace')}/{metadata['name']} makes RKE2 install the "
                f"operator in {target} too; the two would undo each other",
                "delete it and its manifest in /var/lib/rancher/rke2/server/manifests of every "
                "server",
                "RKE2 documentation, Helm integration",
            )


def _definitions(facts: Facts, plan: Plan) -> Iterator[Finding]:
    for body in facts.definitions:
        labels = body["metadata"].get("labels") or {}
        managed = [
            key for key in labels if key.startswith(("olm.managed", "operators.coreos.com/"))
        ]
        if managed:
            yield Finding(
                "definitions-managed",
                f"{body['metadata']['name']} is managed by the Operator Lifecycle Manager "
                f"(label {managed[0]}), which puts its own version back",
                "remove that subscription of the operator first",
                "NVIDIA GPU Operator documentation, upgrading",
            )
        spec, status = body.get("spec") or {}, body.get("status") or {}
        served = {v["name"] for v in spec.get("versions") or () if v.get("served")}
        stale = sorted(set(status.get("storedVersions") or ()) - served)
        if stale:
            yield Finding(
                "definitions-old",
                f"{body['metadata']['name']} stores objects as {', '.join(stale)}, which it serves "
                f"no more; {plan.version or 'the new chart'} cannot take it over",
                "migrate the stored objects, then take the version out of status.storedVersions",
                "Kubernetes documentation, versions in CustomResourceDefinitions",
            )


def _nodes(facts: Facts, plan: Plan) -> Iterator[Finding]:
    known = ", ".join(sorted(facts.nodes)) or "no node"
    for name in plan.nodes:
        node = facts.nodes.get(name)
        if node is None:
            yield Finding(
                "node-missing",
                f"node {name} is not in the cluster, which has {known}",
                "look why its host did not join, or take it out of the pools",
                "the configuration's pools",
            )
            continue
        yield from _node(name, node, plan)


def _node(name: str, node: Object, plan: Plan) -> Iterator[Finding]:
    runtime = ((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion", "")
    found = _CONTAINERD.match(runtime)
    if plan.cdi and found and (int(found[1]), int(found[2])) < _CDI_CONTAINERD:
        yield Finding(
            "containerd-too-old",
            f"node {name} runs {runtime}; CDI, which the operator uses since v25.10, needs "
            "containerd 2.0",
            "update RKE2 to v1.32.2 or later",
            "NVIDIA GPU Operator documentation, CDI; RKE2 release notes",
        )
    labels = node["metadata"].get("labels") or {}
    if labels.get(DEPLOY_LABEL) == "false":
        yield Finding(
            "node-opted-out",
            f"node {name} has the label {DEPLOY_LABEL}=false: no operand comes there",
            f"`kubectl label node {name} {DEPLOY_LABEL}-`, or take it out of the pools",
            _INSTALL,
        )
    kinds = [("operands", "daemonsets.tolerations", plan.tolerations)]
    if plan.with_nfd:
        worker = "node-feature-discovery.worker.tolerations"
        kinds.append(("the workers of NFD", worker, plan.nfd_tolerations))
    for who, value, tolerated in kinds:
        taints = [taint for taint in hard(node) if not tolerates(tolerated, taint)]
        if taints:
            yield Finding(
                "taint-not-tolerated",
                f"node {name} has {', '.join(map(shown, taints))}, which {who} do not tolerate: "
                "its DaemonSets want 0 pods there, and nothing says so",
                f"add it to the value {value}, or remove the taint",
                _INSTALL,
            )


def _is_discovery(body: Object) -> bool:
    labels = body["metadata"].get("labels") or {}
    containers = body["spec"]["template"]["spec"].get("containers") or ()
    return labels.get("app.kubernetes.io/name") == "node-feature-discovery" or any(
        "node-feature-discovery" in str(container.get("image")) for container in containers
    )


def _is_ours(body: Object, plan: Plan) -> bool:
    return _owner(body) == f"Helm release {plan.namespace}/{plan.release}"


def _owner(body: Object) -> str:
    annotations = body["metadata"].get("annotations") or {}
    release = annotations.get("meta.helm.sh/release-name")
    namespace = annotations.get("meta.helm.sh/release-namespace")
    return f"Helm release {namespace}/{release}" if release else "no Helm release"


_CHECKS: Final[tuple[Callable[[Facts, Plan], Iterator[Finding]], ...]] = (
    _pending,
    _upgrade,
    _namespace,
    _discovery,
    _policies,
    _helm_charts,
    _definitions,
    _nodes,
)
