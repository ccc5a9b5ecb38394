"""Carries out what a hostile tenant would try, and says what came of it: each attempt must be refused.

Nothing is left behind: what is sent to the API server is a dry run or a question, and what is sent to the
public API is either refused or removed again. The pods follow the benchmark of the Kubernetes multi-tenancy
working group and the doors out of a Kata VM: annotations, runtime class, choice of node.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from gpuclusters.container_api import container, image
from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.container_api.container import LEASE_ANNOTATION
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.core.errors import AdapterError
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.proof.evidence import Attempt, AttemptOutcome
from gpuclusters.tenancy.isolation import POLICY, PULL_SECRET
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NETWORK_POLICY
from gpuclusters.tenancy.programs import Accounts, Program
from gpuclusters.tenancy.proof import network_policy, ready

Pod = dict[str, Any]
Object = Mapping[str, Any]

_ELSEWHERE = (
    "169.254.169.254/latest:1",
    "192.0.2.1:443/redfish:1",
    "localhost:10250/pods:1",
    "metadata.google.internal/v1:1",
    "kubernetes.default.svc.cluster.local/api:1",
)
"""Images at addresses and local names, which a machine reaches and a tenant must not."""
_ANYONE = "anyone on the network"
_OPERATION = ("/metrics", "/healthz", "/readyz")
"""What is for monitoring and kubelets."""
_FLOOD = 600
"""Requests without a token until one must have been limited: 50 at once are taken by each copy of the API."""
_MISUSE = "misuse the public API"
_NOBODY = "c-00000000000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that is tried."""

    objects: KubernetesObjects
    accounts: Accounts
    """Of the cluster's own programs."""
    node: str
    """Name of one of its machines."""
    api: ContainerApi | None
    """None: the public API is not tried, which the findings say."""
    tokens: Mapping[str, str]
    """By tenant, as far as they are known."""
    tenant_claim: str
    """Claim of a token that names the tenant."""


class Access(NamedTuple):
    """Something that a tenant's account must not be allowed to do."""

    attempt: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def accesses(own: str, other: str, controllers: str) -> tuple[Access, ...]:
    """What the account of namespace `own` must not do to itself, another tenant and the controllers."""
    ours, admission = "gpu-clusters.dev", "admissionregistration.k8s.io"
    cilium, rbac = ("cilium.io", "ciliumnetworkpolicies"), "rbac.authorization.k8s.io"
    keys = (controllers, "controllers")
    return (
        Access("read the pods of another tenant", "list", "", "pods", other),
        Access("read the secrets of another tenant", "list", "", "secrets", other),
        Access("read the logs of another tenant", "get", "", "pods", other, "", "log"),
        Access(
            "run commands in containers of another tenant", "create", "", "pods", other, "", "exec"
        ),
        Access("create pods at another tenant", "create", "", "pods", other),
        Access("read the keys of the controllers", "get", "", "secrets", *keys),
        Access("become the controllers", "create", "", "serviceaccounts", *keys, "token"),
        Access("read leases", "list", ours, "gpuleases"),
        Access("take a GPU by writing a lease", "patch", ours, "gpuleases", "", "", "status"),
        Access("read tenancies", "list", ours, "tenancies"),
        Access("raise its own share", "patch", ours, "tenancies"),
        Access("raise its own quota", "patch", "", "resourcequotas", own),
        Access("open its own network", "create", *cilium, own),
        Access("delete its own isolation", "delete", *cilium, own),
        Access("relabel its own namespace", "patch", "", "namespaces", "", own),
        Access(
            "start a container in a running VM", "patch", "", "pods", own, "", "ephemeralcontainers"
        ),
        Access("make its own VM larger", "patch", "", "pods", own, "", "resize"),
        Access("read nodes", "list", "", "nodes"),
        Access("change nodes", "patch", "", "nodes"),
        Access("bind roles", "create", rbac, "rolebindings", own),
        Access("act as somebody else", "impersonate", "", "users"),
        Access(
            "switch the pod policy off", "patch", admission, "validatingadmissionpolicybindings"
        ),
    )


def forbidden_pods(sound: Pod, *, node: str, gpu_resource: str) -> Iterator[tuple[str, Pod]]:
    """Every way out of the VM that a pod's specification offers, each as one change to a sound pod."""
    specs: Mapping[str, Object] = {
        **_SPECS,
        "a node of its own choice": {"nodeName": node},
        "a selector of nodes": {"nodeSelector": {"kubernetes.io/hostname": node}},
    }
    for key, name in (
        ("schedulingGates", "a pod with GPUs and without a lease"),
        ("runtimeClassName", "a container without a VM"),
    ):
        pod = copy.deepcopy(sound)
        pod["spec"].pop(key, None)
        yield name, pod
    limits = sound["spec"]["containers"][0]["resources"]["limits"]
    three = _amounts(limits | {gpu_resource: "3"})
    annotations = {
        **_ANNOTATIONS,
        "a pod that names a lease by itself": {LEASE_ANNOTATION: f"{node}/0"},
        "a device by its CDI name": {"cdi.k8s.io/steal": f"{gpu_resource}=1"},
    }
    tables: Sequence[tuple[Callable[[Pod], Pod], Mapping[str, Object]]] = (
        (lambda pod: pod["spec"], specs),
        (lambda pod: pod["spec"]["containers"][0], {**_CONTAINERS, "three GPUs": three}),
        (lambda pod: pod["metadata"].setdefault("annotations", {}), annotations),
    )
    for section, changes in tables:
        for name, change in changes.items():
            pod = copy.deepcopy(sound)
            section(pod).update(change)
            yield name, pod


def _amounts(amounts: Mapping[str, str]) -> Object:
    return {"resources": {"requests": dict(amounts), "limits": dict(amounts)}}


def _volume(**source: Any) -> Object:
    return {"volumes": [{"name": "mine", **source}]}


_BESIDE = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
_TOKEN = {"serviceAccountToken": {"path": "token"}}
_SPECS: Mapping[str, Object] = {
    "the host's network": {"hostNetwork": True},
    "the host's processes": {"hostPID": True},
    "the host's shared memory": {"hostIPC": True},
    "a toleration of every taint": {"tolerations": [{"operator": "Exists"}]},
    "another scheduler": {"schedulerName": "mine"},
    "a priority above others": {"priorityClassName": "system-node-critical"},
    "a token of the API server": {"automountServiceAccountToken": True},
    "a device by a resource claim": {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]
    },
    "a place beside another tenant's pods": {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_BESIDE]}}
    },
    "a folder of the host": _volume(hostPath={"path": "/"}),
    "a token of the API server as a volume": _volume(projected={"sources": [_TOKEN]}),
    "the credentials of its registry as a volume": _volume(secret={"secretName": PULL_SECRET}),
    "a volume of any CSI driver": _volume(csi={"driver": "nfs.csi.k8s.io"}),
    "a disk without a limit": _volume(emptyDir={}),
}
_MACHINE = {"httpGet": {"host": "192.0.2.1", "port": 443}}
_CREDENTIALS = {"secretKeyRef": {"name": PULL_SECRET, "key": ".dockerconfigjson"}}
_CONTAINERS: Mapping[str, Object] = {
    "a privileged container": {"securityContext": {"privileged": True}},
    "capabilities": {
        "securityContext": {
            "capabilities": {"add": ["SYS_ADMIN"]},
            "allowPrivilegeEscalation": True,
        }
    },
    "a port of the host": {"ports": [{"containerPort": 80, "hostPort": 6666}]},
    "a GPU as nvidia.com/gpu": _amounts({"nvidia.com/gpu": "1"}),
    "a GPU as nvidia.com/mig-1g.10gb": _amounts({"nvidia.com/mig-1g.10gb": "1"}),
    "a probe from the machine's network": {"startupProbe": _MACHINE},
    "a hook from the machine's network": {"lifecycle": {"postStart": _MACHINE}},
    "an image that the machine has from another": {"imagePullPolicy": "IfNotPresent"},
    "an image from an address": {"image": "192.0.2.1:443/redfish:1"},
    "an image from the machine itself": {"image": "localhost:5000/image:1"},
    "an image from a cluster's own name": {
        "image": "registry.kube-system.svc.cluster.local/image:1"
    },
    "the credentials of its registry as a variable": {
        "env": [{"name": "CREDENTIALS", "valueFrom": _CREDENTIALS}]
    },
}


_ANNOTATIONS: Mapping[str, Object] = {
    "a changed kernel of the VM": {
        "io.katacontainers.config.hypervisor.kernel_params": "init=/bin/sh"
    },
    "a second network": {"k8s.v1.cni.cncf.io/networks": "/dev/mem"},
    "a device by an annotation for NRI": {"devices.nri.io/pod": "/dev/mem"},
    "a device by an annotation for CRI-O": {"io.kubernetes.cri-o.Devices": "/dev/mem"},
}


def attack(target: Target) -> Iterator[Attempt]:
    """Every attempt of every tenant of the cluster; `AdapterError` if the API server is not reached."""
    tenancies = {one["spec"]["tenant"]: one for one in target.objects.list(TENANCY)}
    for tenant, tenancy in sorted(tenancies.items()):
        others = {name: one for name, one in tenancies.items() if name != tenant}
        yield _ready(tenant, tenancy)
        yield from _rights(target, tenant, tenancy, others)
        yield from _pods(target, tenant, tenancy)
        yield from _network(target, tenant, tenancy)
        yield from _api(target, tenant, tenancy, others)
    yield from _leases(target)
    yield from strangers(target)


def _found(about: str, who: str, attempt: str, said: str, *, refused: bool) -> Attempt:
    outcome = AttemptOutcome.REFUSED if refused else AttemptOutcome.SUCCEEDED
    return Attempt(about, who, attempt, outcome, said)


def _not_tried(about: str, who: str, attempt: str, why: object) -> Attempt:
    return Attempt(about, who, attempt, AttemptOutcome.NOT_TRIED, str(why))


def _ready(tenant: str, tenancy: Object) -> Attempt:
    status = tenancy.get("status") or {}
    found = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    current = status.get("observedGeneration") == tenancy["metadata"].get("generation")
    said = found["message"] or found["reason"] if found else "no condition"
    said += "" if current else " (of an older specification)"
    attempt = "live with isolation that is written down and not enforced"
    return _found("enforcement", tenant, attempt, said, refused=current and ready(tenancy))


def _rights(
    target: Target, tenant: str, tenancy: Object, others: Mapping[str, Any]
) -> Iterator[Attempt]:
    own = tenancy["spec"]["namespace"]
    controllers = target.accounts.namespace(Program.CONTROLLERS)
    # A cluster with one tenant has no other namespace of that kind; that of the controllers stands in.
    other = next((one["spec"]["namespace"] for one in others.values()), controllers)
    user = f"system:serviceaccount:{own}:default"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
    for access in accesses(own, other, controllers):
        attributes = {k: v for k, v in access._asdict().items() if v and k != "attempt"}
        allowed = target.objects.may(user, groups, attributes)
        said = f"{user} may {'' if allowed else 'not '}{access.verb} {access.resource}"
        yield _found("rights", tenant, access.attempt, said, refused=not allowed)


def _pods(target: Target, tenant: str, tenancy: Object) -> Iterator[Attempt]:
    spec = tenancy["spec"]
    resource = spec["gpuResource"]
    request = ContainerRequest.model_validate(
        {"image": image.example(spec.get("images") or ()), "gpus": min(spec["sizes"])}
    )
    sound = container.pod(
        request,
        container=_NOBODY,
        tenant=tenant,
        namespace=spec["namespace"],
        runtime_class=spec["runtimeClasses"][0],
        gpu_resource=resource,
    )
    accepted = target.objects.try_pod(spec["namespace"], sound)
    if accepted is not None and "exceeded quota" not in accepted:
        why = f"a pod that keeps all rules is refused, so that refusals prove nothing: {accepted}"
        yield _not_tried("pods", tenant, "leave the VM by a pod", why)
        return
    for attempt, pod in forbidden_pods(sound, node=target.node, gpu_resource=resource):
        refused = target.objects.try_pod(spec["namespace"], pod)
        # A quota that is used up refuses everything, which proves nothing about this pod.
        if refused is not None and "exceeded quota" in refused:
            yield _not_tried("pods", tenant, attempt, refused)
        else:
            said = refused or "accepted"
            yield _found("pods", tenant, attempt, said, refused=refused is not None)


def _network(target: Target, tenant: str, tenancy: Object) -> Iterator[Attempt]:
    found = target.objects.list(NETWORK_POLICY, tenancy["spec"]["namespace"])
    by_name = {policy["metadata"]["name"]: policy for policy in found}
    attempt = "reach others because no policy closes both directions"
    said = f"policies in force: {', '.join(sorted(by_name)) or 'none'}"
    closed = network_policy(by_name.get(POLICY)) is None
    yield _found("network", tenant, attempt, said, refused=closed)


def _leases(target: Target) -> Iterator[Attempt]:
    """Short cuts around reset, clearing and verification, which the server refuses to everybody."""
    for lease in target.objects.list(GPU_LEASE):
        name, phase = lease["metadata"]["name"], (lease.get("status") or {}).get("phase")
        to = "Leased" if phase == "Free" else "Free"
        refused = target.objects.try_status(GPU_LEASE, name, {"phase": to})
        attempt = f"{name}: a GPU from {phase} straight to {to}"
        said = refused or "accepted"
        yield _found("leases", "an administrator", attempt, said, refused=refused is not None)


def _api(
    target: Target, tenant: str, tenancy: Object, others: Mapping[str, Any]
) -> Iterator[Attempt]:
    api, token = target.api, target.tokens.get(tenant)
    if api is None or token is None:
        why = "no address of the API was given" if api is None else f"no token of {tenant} is known"
        yield _not_tried("api", tenant, _MISUSE, why)
        return
    try:
        sources = tenancy["spec"].get("images") or ()
        yield from _with_tokens(target, api, tenant, others)
        yield from _requests(api, tenant, token, sources, others)
        yield from _of_others(target, api, tenant, others)
    except AdapterError as error:
        yield _not_tried("api", tenant, _MISUSE, error)


def strangers(target: Target) -> Iterator[Attempt]:
    """What anybody who reaches the API would try. The flood is last: the API limits us afterwards."""
    api = target.api
    if api is None:
        return
    found = partial(_found, "api", _ANYONE)
    try:
        for path in _OPERATION:
            answer = api.call("GET", path, None)
            refused = answer.status != HTTPStatus.OK
            yield found(f"read {path} of the API", answer.said, refused=refused)
        sent, limited = 0, False
        while sent < _FLOOD and not limited:
            answer = api.call("GET", "/v1/containers", None)
            sent, limited = sent + 1, answer.status == HTTPStatus.TOO_MANY_REQUESTS
        said = f"{answer.said}; after {sent} requests"
        yield found("ask without a token as often as it likes", said, refused=limited)
    except AdapterError as error:
        yield _not_tried("api", _ANYONE, _MISUSE, error)


def _with_tokens(
    target: Target, api: ContainerApi, tenant: str, others: Mapping[str, Any]
) -> Iterator[Attempt]:
    token = target.tokens[tenant]
    for attempt, bad in (
        ("come without a token", None),
        ("come with a token that is signed by nobody", _unsigned(token)),
        ("come with a token whose tenant was changed", _changed(token, target.tenant_claim)),
    ):
        answer = api.call("GET", "/v1/containers", bad)
        # Limited is refused too: others without a token may have asked from the same address.
        yield _found("api", tenant, attempt, answer.said, refused=answer.status in (401, 429))
    second = next((target.tokens[name] for name in others if name in target.tokens), token)
    answer = api.call("GET", "/v1/containers", token, second_token=second)
    attempt = "come with two tokens at once"
    yield _found("api", tenant, attempt, answer.said, refused=answer.status == 400)


def _requests(
    api: ContainerApi, tenant: str, token: str, sources: Sequence[str], others: Mapping[str, Any]
) -> Iterator[Attempt]:
    sound = image.example(sources)
    # Of what the operator lists an attempt proves nothing.
    elsewhere = [one for one in _ELSEWHERE if not image.is_allowed(one, sources)]
    attempts: dict[str, dict[str, Any]] = {
        "choose another namespace": {"namespace": "kube-system"},
        "choose another tenant": {"tenant": next(iter(others), "somebody-else")},
        "ask for the host's network": {"hostNetwork": True},
        "ask for three GPUs": {"gpus": 3},
        "run an image that can change": {"image": sound.rpartition(":")[0]},
        "have the disk of a whole machine": {"storageGib": 65_536},
        **{
            f"have the machine contact {one.partition('/')[0]}": {"image": one} for one in elsewhere
        },
    }
    for attempt, field in attempts.items():
        answer = api.call("POST", "/v1/containers", token, {"image": sound, "gpus": 1, **field})
        if answer.status in (201, 202):
            api.call("DELETE", f"/v1/containers/{answer.body['id']}", token)
        yield _found("api", tenant, attempt, answer.said, refused=answer.status in (400, 422))


def _of_others(
    target: Target, api: ContainerApi, tenant: str, others: Mapping[str, Any]
) -> Iterator[Attempt]:
    token = target.tokens[tenant]
    for other in others:
        theirs = target.tokens.get(other)
        listed = api.call("GET", "/v1/containers", theirs).body if theirs else None
        for one in ((listed or {}).get("items") or ())[:1]:
            for attempt, method, tail in (
                (f"see a container of {other}", "GET", ""),
                (f"read the log of a container of {other}", "GET", "/logs"),
                (f"stop a container of {other}", "DELETE", ""),
            ):
                # Refused is what nobody could tell from a container that never was, and what did nothing.
                answer = api.call(method, f"/v1/containers/{one['id']}{tail}", token)
                never = api.call(method, f"/v1/containers/{_NOBODY}{tail}", token)
                kept = api.call("GET", f"/v1/containers/{one['id']}", theirs).body or {}
                same = (answer.status, _title(answer)) == (never.status, _title(never))
                refused = same and kept.get("state") != "deleting"
                yield _found("api", tenant, attempt, answer.said, refused=refused)


def _title(answer: Answer) -> Any:
    return answer.body.get("title") if isinstance(answer.body, Mapping) else None


def _unsigned(token: str) -> str:
    header, payload, _ = token.split(".")
    return f"{_with(header, 'alg', 'none')}.{payload}."


def _changed(token: str, claim: str) -> str:
    header, payload, signature = token.split(".")
    return f"{header}.{_with(payload, claim, 'somebody-else')}.{signature}"


def _with(part: str, key: str, value: str) -> str:
    """A part of a token that says something else."""
    said = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return base64.urlsafe_b64encode(json.dumps(said | {key: value}).encode()).rstrip(b"=").decode()
