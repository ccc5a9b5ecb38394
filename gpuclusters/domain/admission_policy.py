"""What a tenant's pod may say, as a ValidatingAdmissionPolicy.

Pod Security Admission does not look at runtime classes, node names, tolerations or annotations:
those are the doors out of a Kata VM, so they are closed here. Sources: Kubernetes' documentation of
ValidatingAdmissionPolicy; Kata Containers' list of annotations that change the guest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuclusters.domain.container import LEASE_ANNOTATION, LEASE_GATE
from gpuclusters.domain.isolation import GPU_SIZES_ANNOTATION, TENANT_LABEL

POD_POLICY = "gpu-clusters-tenant-pods"
SERVICE_POLICY = "gpu-clusters-tenant-services"
"""Names of the policies and of their bindings."""

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
    requests = "dyn(c).resources.requests"
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
            "expression": (
                "object.spec.containers.all(c, "
                f"!(has(dyn(c).resources) && has({requests}) && '{resource}' in {requests}) || "
                f"({asks} && string({requests}['{resource}']) == string({ask})))"
            ),
            "message": f"requests and limits of {resource} are the same",
        },
        {
            "expression": (
                f"request.operation != 'CREATE' || !object.spec.containers.exists(c, {asks}) || "
                "variables.gated"
            ),
            "message": f"a pod that asks for {resource} is made with the scheduling gate {LEASE_GATE}: "
            "it gets its GPUs, and is let go, by a lease",
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


# PodSecurity closes these too; stated here as well, so that no exemption there opens a VM.
_HOST_RULES: list[dict[str, str]] = [
    {
        "expression": " && ".join(
            f"(!has(object.spec.{flag}) || object.spec.{flag} == false)"
            for flag in ("hostNetwork", "hostPID", "hostIPC")
        ),
        "message": "spec.hostNetwork, hostPID and hostIPC must be false or left out",
    },
    {
        "expression": ("!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))"),
        "message": "volumes of type hostPath are refused",
    },
    *(
        {
            "expression": (
                f"!has(object.spec.{of}) || object.spec.{of}.all(c, "
                "(!has(c.securityContext) || !has(c.securityContext.privileged) || "
                "c.securityContext.privileged == false) && "
                "(!has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0)))"
            ),
            "message": f"{of} may neither be privileged nor have a hostPort",
        }
        for of in ("containers", "initContainers")
    ),
    {
        "expression": (
            "!has(object.spec.ephemeralContainers) || object.spec.ephemeralContainers.size() == 0"
        ),
        "message": "ephemeral containers are refused",
    },
]


def _lease_variables(controllers: str) -> list[dict[str, str]]:
    def annotation(of: str) -> str:
        there = (
            f"has({of}.metadata.annotations) && '{LEASE_ANNOTATION}' in {of}.metadata.annotations"
        )
        return f"{there} ? {of}.metadata.annotations['{LEASE_ANNOTATION}'] : ''"

    def gated(of: str) -> str:
        gates = f"{of}.spec.schedulingGates"
        return f"has({gates}) && {gates}.exists(g, g.name == '{LEASE_GATE}')"

    return [
        {
            "name": "byControllers",
            "expression": f"request.userInfo.username == '{controllers}'",
        },
        {"name": "gated", "expression": gated("object")},
        {"name": "wasGated", "expression": f"oldObject != null && {gated('oldObject')}"},
        {"name": "lease", "expression": annotation("object")},
        {
            "name": "leaseBefore",
            "expression": f"oldObject != null ? ({annotation('oldObject')}) : ''",
        },
    ]


_LEASE_RULES: list[dict[str, str]] = [
    {
        "expression": "variables.byControllers || !variables.wasGated || variables.gated",
        "message": f"the scheduling gate {LEASE_GATE} is the lease controller's to remove",
    },
    {
        "expression": "variables.byControllers || variables.lease == variables.leaseBefore",
        "message": f"the annotation {LEASE_ANNOTATION} is the lease controller's to set",
    },
]


def pod_policy(
    *,
    runtime_classes: Sequence[str],
    runtime_selector: Sequence[str],
    gpu_resource: str,
    controllers: str,
) -> dict[str, Any]:
    """The policy's spec: pods in tenants' namespaces, on creation and change.

    Args:
        runtime_classes: those that a pod may name.
        runtime_selector: the node labels by which the runtime classes choose nodes.
        gpu_resource: name under which Kubernetes counts GPUs.
        controllers: user name of the lease controller's service account.
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
                "variables.byControllers || !has(object.spec.nodeSelector) || "
                f"object.spec.nodeSelector.all(k, k in {_cel_list(runtime_selector)}) || "
                "(oldObject != null && has(oldObject.spec.nodeSelector) && "
                "oldObject.spec.nodeSelector == object.spec.nodeSelector)"
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
        *_HOST_RULES,
        *_gpu_rules(gpu_resource),
        *_LEASE_RULES,
    ]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["pods", "pods/ephemeralcontainers"],
                }
            ]
        },
        "variables": _lease_variables(controllers),
        "validations": [{**rule, "reason": "Forbidden"} for rule in rules],
    }


def service_policy() -> dict[str, Any]:
    """The policy's spec: services of tenants open no door to the outside.

    The quota counts node ports and load balancers down to none; addresses it cannot count.
    """
    rules = [
        {
            "expression": "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0",
            "message": "spec.externalIPs is refused",
        },
        {
            "expression": "!has(object.spec.type) || object.spec.type == 'ClusterIP'",
            "message": "spec.type must be ClusterIP",
        },
    ]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["services"],
                }
            ]
        },
        "validations": [{**rule, "reason": "Forbidden"} for rule in rules],
    }


def policy_binding(policy: str) -> dict[str, Any]:
    """The binding's spec: every namespace that belongs to a tenant, without exception."""
    return {
        "policyName": policy,
        "validationActions": ["Deny", "Audit"],
        "matchResources": {
            "namespaceSelector": {"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]}
        },
    }
