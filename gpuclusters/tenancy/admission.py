"""What tenants' pods and the cluster's own programs may do: `policies.yaml` with a cluster's words in it."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.container_api import container, image
from gpuclusters.container_api.request import MOST_VOLUMES
from gpuclusters.core import scripts
from gpuclusters.core.custom_resource import GROUP, VERSION
from gpuclusters.core.naming import RESERVED_NAMESPACES, RESERVED_PREFIX
from gpuclusters.device_plugin.decide import KUBELET_AGREES
from gpuclusters.tenancy import isolation
from gpuclusters.tenancy.model import HUGE_PAGES
from gpuclusters.tenancy.objects import MANAGED_LABEL, MANAGER
from gpuclusters.tenancy.on_demand import OnDemand
from gpuclusters.tenancy.programs import TENANTS_PROGRAMS, Accounts, Program, tenant_role

POD_POLICY = "gpu-clusters-tenant-pods"
SERVICE_POLICY = "gpu-clusters-tenant-services"
PROGRAM_POLICIES = (
    "gpu-clusters-program-namespaces",
    "gpu-clusters-program-places",
    "gpu-clusters-program-roles",
    "gpu-clusters-program-pods",
    "gpu-clusters-program-tenancies",
    "gpu-clusters-leases",
)
"""Names of the policies and of their bindings."""

_ENFORCE = "pod-security.kubernetes.io/enforce"
_FIXED = {
    "allowance": image.allowance(()),
    "containerLabel": container.CONTAINER_LABEL,
    "enforceLabel": _ENFORCE,
    "group": GROUP,
    "imageFull": image.FULL,
    "imageLocal": image.LOCAL,
    "imagePublic": image.PUBLIC,
    "imageRepository": image.REPOSITORY,
    "imagesAnnotation": isolation.IMAGES_ANNOTATION,
    "kubeletAgrees": KUBELET_AGREES,
    "lease": container.LEASE_ANNOTATION,
    "leaseGate": container.LEASE_GATE,
    "manager": MANAGER,
    "mostVolumes": str(MOST_VOLUMES),
    "pullSecret": isolation.PULL_SECRET,
    "request": container.REQUEST_ANNOTATION,
    "reservedPrefix": RESERVED_PREFIX,
    "sizesAnnotation": isolation.GPU_SIZES_ANNOTATION,
    "tenantLabel": isolation.TENANT_LABEL,
    "userPrefix": container.USER_LABEL_PREFIX,
    "version": VERSION,
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
    return _policy(
        POD_POLICY,
        controllersUser=controllers,
        gpu=gpu_resource,
        resources=f"{gpu_resource}, {HUGE_PAGES}" if huge_pages else gpu_resource,
        runtimeClasses=", ".join(runtime_classes),
        runtimeClassList=_cel_list(runtime_classes),
        runtimeSelector=_cel_list(runtime_selector),
    )


def service_policy() -> dict[str, Any]:
    """The policy's spec: services of tenants."""
    return _policy(SERVICE_POLICY)


def policy_binding(policy: str) -> dict[str, Any]:
    """The binding's spec: every namespace that belongs to a tenant, without exception."""
    tenants = {"matchExpressions": [{"key": isolation.TENANT_LABEL, "operator": "Exists"}]}
    return program_binding(policy) | {"matchResources": {"namespaceSelector": tenants}}


def program_policies(
    accounts: Accounts, on_demand: OnDemand | None = None
) -> Mapping[str, dict[str, Any]]:
    """The spec of each policy about the cluster's own programs, by its name."""
    made = f"request.operation == 'CREATE' && {_by(accounts, Program.API)}"
    roles = " || ".join(
        f"(object.roleRef.name == '{tenant_role(program)}' && "
        f"s.namespace == '{accounts.namespace(program)}' && s.name == '{program}')"
        for program in TENANTS_PROGRAMS
    )
    words = {
        "byApi": _by(accounts, Program.API),
        "byControllers": _by(accounts, Program.CONTROLLERS),
        "byDevicePlugin": _by(accounts, Program.DEVICE_PLUGIN),
        "byPrograms": _by(accounts, *Program),
        "onDemand": f" || ({made} && {on_demand.rule()})" if on_demand else "",
        "ownLabels": _cel_list(
            [container.CONTAINER_LABEL, isolation.TENANT_LABEL, container.NAME_LABEL]
        ),
        "reserved": _cel_list(sorted({*RESERVED_NAMESPACES, *accounts.namespaces})),
        "tenantRoles": roles,
    }
    keys = {"container": container.CONTAINER_LABEL, "enforce": _ENFORCE, "managed": MANAGED_LABEL}
    for of in ("object", "oldObject", "namespaceObject"):
        for word, key in {**keys, "tenant": isolation.TENANT_LABEL}.items():
            words[f"{of}.{word}"] = _label(of, key)
    return {name: _policy(name, **words) for name in PROGRAM_POLICIES}


def program_binding(policy: str) -> dict[str, Any]:
    """The binding's spec: everywhere."""
    return {"policyName": policy, "validationActions": ["Deny", "Audit"]}


def _policy(name: str, **words: str) -> dict[str, Any]:
    """The spec of a policy; one with `by` judges only requests for which that holds."""
    said = scripts.manifest("tenancy/policies.yaml", _FIXED | words, name)
    creation = [_rule(one, "!variables.made || ({})") for one in said.get("at-creation", ())]
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [one.get("group", "")],
                    "apiVersions": [one.get("version", "v1")],
                    "operations": one.get("operations", ["CREATE", "UPDATE"]),
                    "resources": one["resources"],
                }
                for one in said["match"]
            ]
        },
        "validations": [*creation, *map(_rule, said["rules"])],
    }
    if by := said.get("by"):
        spec["matchConditions"] = [{"name": "by-a-program", "expression": by}]
    if variables := said.get("variables"):
        spec["variables"] = [{"name": n, "expression": e} for n, e in variables.items()]
    return spec


def _rule(said: Mapping[str, str], where: str = "{}") -> dict[str, str]:
    """One of a policy's validations."""
    rule = {**said, "reason": "Forbidden"}
    if "only" in said:
        allowed = said["allowed"]
        keys = _cel_list(allowed.split(", "))
        message = f"{said['only']} may have none but these: {allowed}"
        rule = {"message": message, "reason": "Forbidden"}
        rule["expression"] = f"{said['of']}.all(o, o.all(k, k in {keys}))"
    return rule | {"expression": where.format(rule["expression"])}


def _cel_list(values: Sequence[str]) -> str:
    """A list of strings in CEL."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _label(of: str, key: str) -> str:
    labels = f"{of}.metadata.labels"
    return f"({of} != null && has({labels}) && '{key}' in {labels} ? {labels}['{key}'] : '')"


def _by(accounts: Accounts, *programs: Program) -> str:
    return f"request.userInfo.username in {_cel_list([accounts.user(one) for one in programs])}"
