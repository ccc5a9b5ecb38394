"""What a tenant's pod may say, as a ValidatingAdmissionPolicy: what is not listed is refused.

What is allowed is what the API makes (`container.pod`) and what Kubernetes adds to it. Pod Security Admission
knows nothing of runtime classes, annotations, resources, or probes from the machine's network. Source:
Kubernetes' documentation of ValidatingAdmissionPolicy and its API reference of Pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.container_api import image
from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE, REQUEST_ANNOTATION
from gpuclusters.container_api.request import MOST_VOLUMES
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
WRITES = ("CREATE", "UPDATE")

Rules = dict[str, str]
"""CEL expressions that must hold, by the message for who breaks them."""


def resource_rule(
    group: str, version: str, resources: Sequence[str], operations: Sequence[str]
) -> dict[str, Any]:
    """Which requests a policy judges."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
    }


def policy(
    matched: Sequence[Mapping[str, Any]],
    rules: Rules,
    *,
    by: str = "",
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A ValidatingAdmissionPolicy's spec; `by` restricts it to requests for which that CEL holds."""
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": list(matched)},
        "validations": [
            {"expression": expression, "message": message, "reason": "Forbidden"}
            for message, expression in rules.items()
        ],
    }
    if by:
        spec["matchConditions"] = [{"name": "by-a-program", "expression": by}]
    if variables:
        spec["variables"] = [{"name": n, "expression": e} for n, e in variables.items()]
    return spec


def cel_list(values: Sequence[str]) -> str:
    """A list of strings in CEL."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _only(what: str, objects: str, allowed: Sequence[str]) -> Rules:
    """Each object of the list `objects` has none but the allowed keys."""
    return {
        f"{what} may have none but these: {', '.join(allowed)}": (
            f"{objects}.all(o, o.all(k, k in {cel_list(allowed)}))"
        )
    }


def _or(there: str, otherwise: str) -> str:
    return f"has({there}) ? {there} : {otherwise}"


def _shape(resources: Sequence[str]) -> Rules:
    """Which fields there may be, and what those may say that Kubernetes fills in."""
    spec, main = "variables.spec", "variables.main"
    security, inner = f"{spec}.securityContext", f"{main}.securityContext"
    token = f"{spec}.automountServiceAccountToken"
    return {
        **_only("spec", f"[{spec}]", _POD),
        "a pod has one container: one VM holds one partition": f"{spec}.containers.size() == 1",
        "spec.automountServiceAccountToken must be false or left out": (
            f"!has({token}) || {token} == false"
        ),
        **_only("a container", f"[{main}]", _CONTAINER),
        **_only("spec.securityContext", f"[{_or(security, '{}')}]", _POD_SECURITY),
        **_only("the securityContext of a container", f"[{_or(inner, '{}')}]", _CONTAINER_SECURITY),
        "a container adds no capabilities": (
            f"!has({inner}) || !has({inner}.capabilities) || !has({inner}.capabilities.add)"
        ),
        "imagePullPolicy must be Always: an image that another tenant pulled is not had "
        "for its name": f"has({main}.imagePullPolicy) && {main}.imagePullPolicy == 'Always'",
        "env takes no values from other objects": (
            f"!has({main}.env) || {main}.env.all(e, !has(e.valueFrom))"
        ),
        **_only("volumes", f"({_or(f'{spec}.volumes', '[]')})", ("name", "persistentVolumeClaim")),
        f"a pod has at most {MOST_VOLUMES} volumes": (
            f"!has({spec}.volumes) || {spec}.volumes.size() <= {MOST_VOLUMES}"
        ),
        **_only(
            "volumeMounts",
            f"({_or(f'{main}.volumeMounts', '[]')})",
            ("mountPath", "name", "readOnly"),
        ),
        **_only("resources", "[variables.resources]", ("limits", "requests")),
        **_only("requests and limits", "[variables.limits, variables.requests]", resources),
        "spec.serviceAccountName must be default or left out": (
            f"!has({spec}.serviceAccountName) || {spec}.serviceAccountName == 'default'"
        ),
        f"spec.imagePullSecrets may hold {PULL_SECRET} only": (
            f"!has({spec}.imagePullSecrets) || "
            f"{spec}.imagePullSecrets.all(s, s.name == '{PULL_SECRET}')"
        ),
        "spec.dnsPolicy must be ClusterFirst or left out": (
            f"!has({spec}.dnsPolicy) || {spec}.dnsPolicy == 'ClusterFirst'"
        ),
        "spec.schedulerName must be left out": (
            f"!has({spec}.schedulerName) || {spec}.schedulerName == 'default-scheduler'"
        ),
        "spec.tolerations may hold those of Kubernetes itself only": (
            f"!has({spec}.tolerations) || {spec}.tolerations.all(t, "
            f"has(t.key) && t.key in {cel_list(TOLERATIONS)})"
        ),
        f"spec.schedulingGates may hold {LEASE_GATE} only": (
            f"!has({spec}.schedulingGates) || "
            f"{spec}.schedulingGates.all(g, g.name == '{LEASE_GATE}')"
        ),
    }


def _runtime(classes: Sequence[str], selector: Sequence[str]) -> Rules:
    spec = "variables.spec"
    return {
        f"spec.runtimeClassName must be one of {', '.join(classes)}": (
            f"has({spec}.runtimeClassName) && {spec}.runtimeClassName in {cel_list(classes)}"
        ),
        # The runtime class has added its own selector before this is asked.
        "spec.nodeSelector is not the tenant's to choose": (
            f"!has({spec}.nodeSelector) || {spec}.nodeSelector.all(k, k in {cel_list(selector)})"
        ),
    }


_SAID = "variables.main.image"
_NO_SOURCES = "variables.sources == ['']"
_IMAGE_IN_FULL = {
    "the image is written in full: registry.example.com/path:tag": (
        f"{_SAID}.matches('{image.FULL}')"
    )
}
# `image.is_allowed`, in CEL.
_IMAGE_ALLOWED = {
    "expression": f"{_NO_SOURCES} ? {_SAID}.matches('{image.PUBLIC}') && "
    f"!{_SAID}.matches('{image.LOCAL}') : variables.sources.exists(s, "
    f"({_SAID}.find('{image.REPOSITORY}') + '/').startsWith(s + '/'))",
    "messageExpression": f"{_NO_SOURCES} ? '{image.allowance(())}' : "
    "'images come from ' + variables.sources.join(', ')",
    "reason": "Forbidden",
}


def _gpus(resource: str) -> Rules:
    annotations = "variables.annotations"
    asked = f"'{resource}' in variables.limits"
    return {
        f"a container asks for as many {resource} as a partition has: see the "
        f"annotation {GPU_SIZES_ANNOTATION} of the namespace": (
            f"!({asked}) || ('{GPU_SIZES_ANNOTATION}' in {annotations} && "
            f"{annotations}['{GPU_SIZES_ANNOTATION}'].split(',').exists(s, "
            f"quantity(s).compareTo(quantity(string(variables.limits['{resource}']))) == 0))"
        ),
        f"a pod that asks for {resource} is made with the scheduling gate {LEASE_GATE}: "
        "it gets its GPUs, and is let go, by a lease": f"!({asked}) || variables.gated",
    }


def _lease_annotation(of: str) -> str:
    there = f"has({of}.metadata.annotations) && '{LEASE_ANNOTATION}' in {of}.metadata.annotations"
    return f"{there} ? {of}.metadata.annotations['{LEASE_ANNOTATION}'] : ''"


# On every request. A pod is judged by its shape once, when it is made, and stays as it is: so what is changed
# here later does not keep the controllers from letting go of a pod that has been waiting.
_ALWAYS: Rules = {
    "ephemeral containers are refused, and a pod keeps its size": (
        "!has(request.subResource) || request.subResource == ''"
    ),
    "spec stays as it was made; the lease controller alone lets a pod go "
    f"({', '.join(_BY_CONTROLLERS)})": (
        "variables.made || (variables.byControllers ? variables.spec.all(k, "
        f"k in {cel_list(_BY_CONTROLLERS)} || "
        "(k in variables.before && variables.spec[k] == variables.before[k])) : "
        "variables.spec == variables.before)"
    ),
    **_only("metadata.annotations", f"[{_or('object.metadata.annotations', '{}')}]", ANNOTATIONS),
    f"the annotation {LEASE_ANNOTATION} is the lease controller's to set": (
        "variables.byControllers || variables.lease == variables.leaseBefore"
    ),
}


def pod_policy(
    *,
    runtime_classes: Sequence[str],
    runtime_selector: Sequence[str],
    gpu_resource: str,
    controllers: str,
    huge_pages: bool = False,
) -> dict[str, Any]:
    """The policy's spec: pods in tenants' namespaces, on creation and change.

    `runtime_selector`: labels by which runtime classes choose nodes; `controllers`: their user name.
    """
    gates = "variables.spec.schedulingGates"
    # `dyn`: the server's type checker knows the fields, and cannot list them.
    variables = {
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
        "byControllers": f"request.userInfo.username == '{controllers}'",
        "gated": f"has({gates}) && {gates}.exists(g, g.name == '{LEASE_GATE}')",
        "lease": _lease_annotation("object"),
        "leaseBefore": f"oldObject != null ? ({_lease_annotation('oldObject')}) : ''",
    }
    resources = ["cpu", "ephemeral-storage", "memory", gpu_resource]
    before_images = {
        **_shape([*resources, HUGE_PAGES] if huge_pages else resources),
        **_runtime(runtime_classes, runtime_selector),
        **_IMAGE_IN_FULL,
    }
    resource_rules = [
        resource_rule("", "v1", ["pods", "pods/ephemeralcontainers", "pods/resize"], WRITES)
    ]
    made = policy(resource_rules, before_images | _gpus(gpu_resource), variables=variables)
    at_creation = made["validations"]
    at_creation.insert(len(before_images), dict(_IMAGE_ALLOWED))
    for one in at_creation:
        one["expression"] = f"!variables.made || ({one['expression']})"
    made["validations"] += policy([], _ALWAYS)["validations"]
    return made


def service_policy() -> dict[str, Any]:
    """The policy's spec: services of tenants open no door; external addresses no quota can count."""
    return policy(
        [resource_rule("", "v1", ["services"], WRITES)],
        {
            "spec.externalIPs is refused": (
                "!has(object.spec.externalIPs) || object.spec.externalIPs.size() == 0"
            ),
            "spec.type must be ClusterIP": (
                "!has(object.spec.type) || object.spec.type == 'ClusterIP'"
            ),
        },
    )


def policy_binding(policy: str) -> dict[str, Any]:
    """The binding's spec: every namespace that belongs to a tenant, without exception."""
    return {
        "policyName": policy,
        "validationActions": ["Deny", "Audit"],
        "matchResources": {
            "namespaceSelector": {"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]}
        },
    }
