"""What a tenant's pod may say, as a ValidatingAdmissionPolicy.

The rules list what is allowed, and everything else is refused: a field, an annotation, a resource or a type
of volume that Kubernetes gets tomorrow is closed until somebody opens it here. What is allowed is what the
API makes (`container.pod`) and what Kubernetes adds to it. Pod Security Admission looks at few of these: it
knows nothing of runtime classes, annotations, resources, or probes that the kubelet makes from the machine's
network. Source: Kubernetes' documentation of ValidatingAdmissionPolicy and its API reference of Pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE, REQUEST_ANNOTATION
from gpuclusters.container_api.request import MOST_VOLUMES
from gpuclusters.domain import image
from gpuclusters.tenancy.isolation import (
    GPU_SIZES_ANNOTATION,
    IMAGES_ANNOTATION,
    PULL_SECRET,
    TENANT_LABEL,
)
from gpuclusters.tenancy.model import HUGE_PAGES

POD_POLICY = "gpu-clusters-tenant-pods"
SERVICE_POLICY = "gpu-clusters-tenant-services"
"""Names of the policies and of their bindings."""

ANNOTATIONS = (REQUEST_ANNOTATION, LEASE_ANNOTATION, "kubernetes.io/limit-ranger")
"""Of the API, of the lease controller, and of Kubernetes where it fills in a LimitRange's defaults."""
TOLERATIONS = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/memory-pressure",
)
"""Keys of those that Kubernetes itself adds to pods."""

# Kubernetes fills in overhead, tolerations, serviceAccount, dnsPolicy, priority, preemptionPolicy and
# schedulerName; rules of their own hold most of them to what it writes.
_POD = (
    "automountServiceAccountToken", "containers", "dnsPolicy", "enableServiceLinks", "imagePullSecrets",
    "nodeSelector", "overhead", "preemptionPolicy", "priority", "restartPolicy", "runtimeClassName",
    "schedulerName", "schedulingGates", "securityContext", "serviceAccount", "serviceAccountName",
    "terminationGracePeriodSeconds", "tolerations", "volumes",
)  # fmt: skip
# No ports (hostPort); no probes and hooks, whose requests the kubelet makes from the machine's network.
_CONTAINER = (
    "args", "command", "env", "image", "imagePullPolicy", "name", "resources", "securityContext",
    "terminationMessagePath", "terminationMessagePolicy", "volumeMounts",
)  # fmt: skip
_POD_SECURITY = ("fsGroup", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile")
_CONTAINER_SECURITY = ("allowPrivilegeEscalation", "capabilities")
_BY_CONTROLLERS = ("nodeSelector", "schedulingGates")
"""What the lease controller changes of a pod that it lets go."""

_Rule = dict[str, str]


def _cel_list(values: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _variables(values: Mapping[str, str]) -> list[_Rule]:
    return [{"name": name, "expression": expression} for name, expression in values.items()]


def _only(what: str, objects: str, allowed: Sequence[str]) -> _Rule:
    """Each object of the list `objects` has none but the allowed keys."""
    return {
        "expression": f"{objects}.all(o, o.all(k, k in {_cel_list(allowed)}))",
        "message": f"{what} may have none but these: {', '.join(allowed)}",
    }


def _or(there: str, otherwise: str) -> str:
    return f"has({there}) ? {there} : {otherwise}"


def _shape(resources: Sequence[str]) -> list[_Rule]:
    """Which fields there may be, and what those may say that Kubernetes fills in."""
    spec, main = "variables.spec", "variables.main"
    return [
        _only("spec", f"[{spec}]", _POD),
        {
            "expression": f"{spec}.containers.size() == 1",
            "message": "a pod has one container: one VM holds one partition",
        },
        {
            "expression": f"!has({spec}.automountServiceAccountToken) || "
            f"{spec}.automountServiceAccountToken == false",
            "message": "spec.automountServiceAccountToken must be false or left out",
        },
        _only("a container", f"[{main}]", _CONTAINER),
        _only("spec.securityContext", f"[{_or(f'{spec}.securityContext', '{}')}]", _POD_SECURITY),
        _only(
            "the securityContext of a container",
            f"[{_or(f'{main}.securityContext', '{}')}]",
            _CONTAINER_SECURITY,
        ),
        {
            "expression": f"!has({main}.securityContext) || !has({main}.securityContext.capabilities)"
            f" || !has({main}.securityContext.capabilities.add)",
            "message": "a container adds no capabilities",
        },
        {
            "expression": f"has({main}.imagePullPolicy) && {main}.imagePullPolicy == 'Always'",
            "message": "imagePullPolicy must be Always: an image that another tenant pulled is not had "
            "for its name",
        },
        {
            "expression": f"!has({main}.env) || {main}.env.all(e, !has(e.valueFrom))",
            "message": "env takes no values from other objects",
        },
        _only(
            "volumes",
            f"({_or(f'{spec}.volumes', '[]')})",
            ("name", "persistentVolumeClaim"),
        ),
        {
            "expression": f"!has({spec}.volumes) || {spec}.volumes.size() <= {MOST_VOLUMES}",
            "message": f"a pod has at most {MOST_VOLUMES} volumes",
        },
        _only(
            "volumeMounts",
            f"({_or(f'{main}.volumeMounts', '[]')})",
            ("mountPath", "name", "readOnly"),
        ),
        _only("resources", "[variables.resources]", ("limits", "requests")),
        _only("requests and limits", "[variables.limits, variables.requests]", resources),
        {
            "expression": f"!has({spec}.serviceAccountName) || {spec}.serviceAccountName == 'default'",
            "message": "spec.serviceAccountName must be default or left out",
        },
        {
            "expression": f"!has({spec}.imagePullSecrets) || "
            f"{spec}.imagePullSecrets.all(s, s.name == '{PULL_SECRET}')",
            "message": f"spec.imagePullSecrets may hold {PULL_SECRET} only",
        },
        {
            "expression": f"!has({spec}.dnsPolicy) || {spec}.dnsPolicy == 'ClusterFirst'",
            "message": "spec.dnsPolicy must be ClusterFirst or left out",
        },
        {
            "expression": f"!has({spec}.schedulerName) || {spec}.schedulerName == 'default-scheduler'",
            "message": "spec.schedulerName must be left out",
        },
        {
            "expression": f"!has({spec}.tolerations) || {spec}.tolerations.all(t, "
            f"has(t.key) && t.key in {_cel_list(TOLERATIONS)})",
            "message": "spec.tolerations may hold those of Kubernetes itself only",
        },
        {
            "expression": f"!has({spec}.schedulingGates) || "
            f"{spec}.schedulingGates.all(g, g.name == '{LEASE_GATE}')",
            "message": f"spec.schedulingGates may hold {LEASE_GATE} only",
        },
    ]


def _runtime(classes: Sequence[str], selector: Sequence[str]) -> list[_Rule]:
    spec = "variables.spec"
    return [
        {
            "expression": f"has({spec}.runtimeClassName) && "
            f"{spec}.runtimeClassName in {_cel_list(classes)}",
            "message": f"spec.runtimeClassName must be one of {', '.join(classes)}",
        },
        {
            # The runtime class has added its own selector before this is asked.
            "expression": f"!has({spec}.nodeSelector) || "
            f"{spec}.nodeSelector.all(k, k in {_cel_list(selector)})",
            "message": "spec.nodeSelector is not the tenant's to choose",
        },
    ]


def _images() -> list[_Rule]:
    """`image.is_allowed`, in CEL."""
    said, own = "variables.main.image", "variables.sources == ['']"
    return [
        {
            "expression": f"{said}.matches('{image.FULL}')",
            "message": "the image is written in full: registry.example.com/path:tag",
        },
        {
            "expression": f"{own} ? {said}.matches('{image.PUBLIC}') && !{said}.matches('{image.LOCAL}') : "
            f"variables.sources.exists(s, ({said}.find('{image.REPOSITORY}') + '/').startsWith(s + '/'))",
            "messageExpression": f"{own} ? '{image.allowance(())}' : "
            "'images come from ' + variables.sources.join(', ')",
        },
    ]


def _gpus(resource: str) -> list[_Rule]:
    annotations = "variables.annotations"
    asked = f"'{resource}' in variables.limits"
    return [
        {
            "expression": f"!({asked}) || ("
            f"'{GPU_SIZES_ANNOTATION}' in {annotations} && "
            f"{annotations}['{GPU_SIZES_ANNOTATION}'].split(',').exists(s, "
            f"quantity(s).compareTo(quantity(string(variables.limits['{resource}']))) == 0))",
            "message": f"a container asks for as many {resource} as a partition has: see the "
            f"annotation {GPU_SIZES_ANNOTATION} of the namespace",
        },
        {
            "expression": f"!({asked}) || variables.gated",
            "message": f"a pod that asks for {resource} is made with the scheduling gate {LEASE_GATE}: "
            "it gets its GPUs, and is let go, by a lease",
        },
    ]


def _lease_variables(controllers: str) -> dict[str, str]:
    def annotation(of: str) -> str:
        there = (
            f"has({of}.metadata.annotations) && '{LEASE_ANNOTATION}' in {of}.metadata.annotations"
        )
        return f"{there} ? {of}.metadata.annotations['{LEASE_ANNOTATION}'] : ''"

    gates = "variables.spec.schedulingGates"
    return {
        "byControllers": f"request.userInfo.username == '{controllers}'",
        "gated": f"has({gates}) && {gates}.exists(g, g.name == '{LEASE_GATE}')",
        "lease": annotation("object"),
        "leaseBefore": f"oldObject != null ? ({annotation('oldObject')}) : ''",
    }


# On every request. A pod is judged by its shape once, when it is made, and stays as it is: so what is changed
# here later does not keep the controllers from letting go of a pod that has been waiting.
_ALWAYS: list[_Rule] = [
    {
        "expression": "!has(request.subResource) || request.subResource == ''",
        "message": "ephemeral containers are refused, and a pod keeps its size",
    },
    {
        "expression": "variables.made || (variables.byControllers ? variables.spec.all(k, "
        f"k in {_cel_list(_BY_CONTROLLERS)} || "
        "(k in variables.before && variables.spec[k] == variables.before[k])) : "
        "variables.spec == variables.before)",
        "message": "spec stays as it was made; the lease controller alone lets a pod go "
        f"({', '.join(_BY_CONTROLLERS)})",
    },
    _only("metadata.annotations", f"[{_or('object.metadata.annotations', '{}')}]", ANNOTATIONS),
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
    huge_pages: bool = False,
) -> dict[str, Any]:
    """The policy's spec: pods in tenants' namespaces, on creation and change.

    Args:
        runtime_classes: those that a pod may name.
        runtime_selector: the node labels by which the runtime classes choose nodes.
        gpu_resource: name under which Kubernetes counts GPUs.
        controllers: user name of the lease controller's service account.
        huge_pages: whether VMs are of huge pages, which pods then ask for.
    """
    resources = ["cpu", "ephemeral-storage", "memory", gpu_resource]
    # `dyn`: the server's type checker knows the fields, and cannot list them.
    variables = _variables(
        {
            "made": "request.operation == 'CREATE'",
            "spec": "dyn(object.spec)",
            "before": "oldObject == null ? {} : dyn(oldObject.spec)",
            "main": "dyn(object.spec.containers[0])",
            "resources": _or("variables.main.resources", "{}"),
            "limits": _or("variables.resources.limits", "{}"),
            "requests": _or("variables.resources.requests", "{}"),
            "annotations": _or("namespaceObject.metadata.annotations", "{}"),
            # A namespace without the annotation has no image at all.
            "sources": f"'{IMAGES_ANNOTATION}' in variables.annotations ? "
            f"variables.annotations['{IMAGES_ANNOTATION}'].split(',') : []",
            **_lease_variables(controllers),
        }
    )
    at_creation = [
        *_shape([*resources, HUGE_PAGES] if huge_pages else resources),
        *_runtime(runtime_classes, runtime_selector),
        *_images(),
        *_gpus(gpu_resource),
    ]
    rules = [
        *(
            {**rule, "expression": f"!variables.made || ({rule['expression']})"}
            for rule in at_creation
        ),
        *_ALWAYS,
    ]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["pods", "pods/ephemeralcontainers", "pods/resize"],
                }
            ]
        },
        "variables": variables,
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
