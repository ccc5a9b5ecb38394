"""What a tenant's pod may say, as a ValidatingAdmissionPolicy.

Pod Security Admission does not look at runtime classes, node names, tolerations or annotations:
those are the doors out of a Kata VM, so they are closed here. Sources: Kubernetes' documentation of
ValidatingAdmissionPolicy; Kata Containers' list of annotations that change the guest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuclusters.domain.isolation import GPU_SIZES_ANNOTATION, TENANT_LABEL

# Added by Kubernetes itself to every pod, so a tenant's pod may carry them.
BUILT_IN_TOLERATIONS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
)
CLOSED_ANNOTATIONS = ("io.katacontainers.", "cdi.k8s.io/", "nvidia.com/")


def _cel_list(values: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _gpu_rules(resource: str) -> list[dict[str, str]]:
    # The server's type checker has no type for maps of quantities and would warn of `limits`.
    limits = "dyn(c).resources.limits"
    ask = f"{limits}['{resource}']"
    asks = f"has(dyn(c).resources) && has({limits}) && '{resource}' in {limits}"
    sizes = f"namespaceObject.metadata.annotations['{GPU_SIZES_ANNOTATION}']"
    stated = (
        "has(namespaceObject.metadata.annotations) && "
        f"'{GPU_SIZES_ANNOTATION}' in namespaceObject.metadata.annotations"
    )
    one_of = f"{sizes}.split(',').exists(s, quantity(s).compareTo(quantity(string({ask}))) == 0)"
    return [
        {
            "expression": f"object.spec.containers.all(c, !({asks}) || ({stated} && {one_of}))",
            "message": f"a container asks for as many {resource} as a partition has: see the "
            f"annotation {GPU_SIZES_ANNOTATION} of the namespace",
        },
        {
            "expression": f"object.spec.containers.filter(c, {asks}).size() <= 1",
            "message": "one container of a pod has the GPUs: one VM holds one partition",
        },
        {
            "expression": (
                f"!has(object.spec.initContainers) || object.spec.initContainers.all(c, !({asks}))"
            ),
            "message": "init containers ask for no GPUs",
        },
    ]


def pod_policy(
    *,
    runtime_classes: Sequence[str],
    runtime_selector: Sequence[str],
    gpu_resource: str,
) -> dict[str, Any]:
    """The policy's spec: pods in tenants' namespaces, on creation and change.

    `runtime_selector` are the node labels by which the runtime classes choose nodes.
    """
    tolerations = _cel_list(BUILT_IN_TOLERATIONS)
    closed = " || ".join(f"k.startsWith('{prefix}')" for prefix in CLOSED_ANNOTATIONS)
    rules = [
        {
            "expression": (
                "has(object.spec.runtimeClassName) && "
                f"object.spec.runtimeClassName in {_cel_list(runtime_classes)}"
            ),
            "message": f"spec.runtimeClassName must be one of {', '.join(runtime_classes)}",
        },
        {
            # Afterwards the scheduler has set it.
            "expression": "request.operation != 'CREATE' || !has(object.spec.nodeName)",
            "message": "spec.nodeName is the scheduler's to set",
        },
        {
            # The runtime class has added its own selector before this is asked.
            "expression": (
                "!has(object.spec.nodeSelector) || "
                f"object.spec.nodeSelector.all(k, k in {_cel_list(runtime_selector)})"
            ),
            "message": "spec.nodeSelector is not the tenant's to choose",
        },
        {
            "expression": "!has(object.spec.affinity) || !has(object.spec.affinity.nodeAffinity)",
            "message": "spec.affinity.nodeAffinity is not the tenant's to choose",
        },
        {
            "expression": (
                "!has(object.spec.tolerations) || object.spec.tolerations.all(t, "
                f"has(t.key) && t.key in {tolerations})"
            ),
            "message": "spec.tolerations may hold those of Kubernetes itself only",
        },
        {
            "expression": (
                "!has(object.spec.schedulerName) || object.spec.schedulerName == 'default-scheduler'"
            ),
            "message": "spec.schedulerName must be left out",
        },
        {
            "expression": (
                "!has(object.spec.priorityClassName) || object.spec.priorityClassName == ''"
            ),
            "message": "spec.priorityClassName must be left out",
        },
        {
            "expression": (
                "!has(object.spec.automountServiceAccountToken) || "
                "object.spec.automountServiceAccountToken == false"
            ),
            "message": "spec.automountServiceAccountToken must be false or left out",
        },
        {
            "expression": (
                f"!has(object.metadata.annotations) || !object.metadata.annotations.exists(k, {closed})"
            ),
            "message": (
                "annotations that change the guest or name devices are refused: "
                f"{', '.join(p + '*' for p in CLOSED_ANNOTATIONS)}"
            ),
        },
        *_gpu_rules(gpu_resource),
    ]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["pods"],
                }
            ]
        },
        "validations": [{**rule, "reason": "Forbidden"} for rule in rules],
    }


def pod_policy_binding(policy: str) -> dict[str, Any]:
    """The binding's spec: every namespace that belongs to a tenant, without exception."""
    return {
        "policyName": policy,
        "validationActions": ["Deny", "Audit"],
        "matchResources": {
            "namespaceSelector": {"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]}
        },
    }
