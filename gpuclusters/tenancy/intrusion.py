"""Carries out what a hostile tenant would try, and says what came of it: each attempt must be refused.

Nothing is left behind: what is sent to the API server is a dry run or a question, and what is sent to the
public API is either refused or removed again. The pods follow the benchmark of the Kubernetes multi-tenancy
working group and the doors out of a Kata VM: annotations, runtime class, choice of node.
"""

import base64
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from gpuclusters.container_api import container, image
from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.container_api.container import LEASE_ANNOTATION
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.core import scripts
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.ports import condition
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.tenancy.isolation import POLICY, PULL_SECRET
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NETWORK_POLICY
from gpuclusters.tenancy.programs import Accounts, Program
from gpuclusters.tenancy.proof import network_policy, ready

Pod = dict[str, Any]
Object = Mapping[str, Any]

_ANYONE = "anyone on the network"
_OPERATION = ("/metrics", "/healthz", "/readyz")
"""What is for monitoring and kubelets."""
_FLOOD = 600
"""Requests without a token until one must have been limited: 50 at once are taken by each copy of the API."""
_MISUSE = "misuse the public API"
_NOBODY = "c-00000000000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
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


def _attempts(kind: str, **words: str) -> Any:
    """What is tried, with the cluster's own words in it."""
    words |= {"pull_secret": PULL_SECRET, "lease": LEASE_ANNOTATION}
    return scripts.manifest("tenancy/attempts.yaml", words, kind)


def forbidden_pods(sound: Pod, *, node: str, gpu_resource: str) -> Iterator[tuple[str, Pod]]:
    """Every way out of the VM that a pod's specification offers, each as one change to a sound pod."""
    for section, attempts in _attempts("pods", node=node, gpu=gpu_resource).items():
        for name, change in attempts.items():
            pod = copy.deepcopy(sound)
            main = pod["spec"]["containers"][0]
            match section:
                case "without":
                    pod["spec"].pop(change, None)
                case "spec":
                    pod["spec"].update(change)
                case "container":
                    main.update(change)
                case "resources":
                    amounts = main["resources"]["limits"] | change
                    main["resources"] = {"requests": amounts, "limits": dict(amounts)}
                case "annotations":
                    pod["metadata"].setdefault("annotations", {}).update(change)
            yield name, pod


def attack(target: Target) -> Iterator[Check]:
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
    yield from unauthenticated(target)


def _found(about: str, who: str, attempt: str, said: str, *, refused: bool) -> Check:
    return Check(about, who, attempt, Outcome.PASSED if refused else Outcome.FAILED, said)


def _not_tried(about: str, who: str, attempt: str, why: object) -> Check:
    return Check(about, who, attempt, Outcome.NOT_TRIED, str(why))


def _ready(tenant: str, tenancy: Object) -> Check:
    status = tenancy.get("status") or {}
    found = condition(tenancy, "Ready")
    current = status.get("observedGeneration") == tenancy["metadata"].get("generation")
    said = found["message"] or found["reason"] if found else "no condition"
    said += "" if current else " (of an older specification)"
    attempt = "live with isolation that is written down and not enforced"
    return _found("enforcement", tenant, attempt, said, refused=current and ready(tenancy))


def _rights(
    target: Target, tenant: str, tenancy: Object, others: Mapping[str, Any]
) -> Iterator[Check]:
    own = tenancy["spec"]["namespace"]
    controllers = target.accounts.namespace(Program.CONTROLLERS)
    # A cluster with one tenant has no other namespace of that kind; that of the controllers stands in.
    other = next((one["spec"]["namespace"] for one in others.values()), controllers)
    user = f"system:serviceaccount:{own}:default"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
    rights = _attempts("rights", own=own, other=other, controllers=controllers)
    for attempt, attributes in rights.items():
        allowed = target.objects.may(user, groups, attributes)
        verb, resource = attributes["verb"], attributes["resource"]
        said = f"{user} may {'' if allowed else 'not '}{verb} {resource}"
        yield _found("rights", tenant, attempt, said, refused=not allowed)


def _pods(target: Target, tenant: str, tenancy: Object) -> Iterator[Check]:
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


def _network(target: Target, tenant: str, tenancy: Object) -> Iterator[Check]:
    found = target.objects.list(NETWORK_POLICY, tenancy["spec"]["namespace"])
    by_name = {policy["metadata"]["name"]: policy for policy in found}
    attempt = "reach others because no policy closes both directions"
    said = f"policies in force: {', '.join(sorted(by_name)) or 'none'}"
    closed = network_policy(by_name.get(POLICY)) is None
    yield _found("network", tenant, attempt, said, refused=closed)


def _leases(target: Target) -> Iterator[Check]:
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
) -> Iterator[Check]:
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


def unauthenticated(target: Target) -> Iterator[Check]:
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
) -> Iterator[Check]:
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
) -> Iterator[Check]:
    sound = image.example(sources)
    # Of what the operator lists an attempt proves nothing.
    elsewhere = [one for one in _attempts("images") if not image.is_allowed(one, sources)]
    other, changing = next(iter(others), "somebody-else"), sound.rpartition(":")[0]
    attempts = _attempts("requests", other=other, changing=changing) | {
        f"have the machine contact {one.partition('/')[0]}": {"image": one} for one in elsewhere
    }
    for attempt, field in attempts.items():
        answer = api.call("POST", "/v1/containers", token, {"image": sound, "gpus": 1, **field})
        if answer.status in (201, 202):
            api.call("DELETE", f"/v1/containers/{answer.body['id']}", token)
        yield _found("api", tenant, attempt, answer.said, refused=answer.status in (400, 422))


def _of_others(
    target: Target, api: ContainerApi, tenant: str, others: Mapping[str, Any]
) -> Iterator[Check]:
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
