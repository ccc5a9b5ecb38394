"""Carries out what a hostile tenant would try, and says what came of each attempt.

Nothing is left behind: what is sent to the API server is a dry run or a question, and what is sent to the
public API is either refused or removed again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from gpuclusters.adapters.errors import AdapterError
from gpuclusters.adapters.kubernetes_objects import KubernetesObjects
from gpuclusters.container_api import container
from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.domain import image
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.proof.evidence_isolation import Finding, Outcome
from gpuclusters.tenancy import intrusion
from gpuclusters.tenancy.isolation import POLICY
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NETWORK_POLICY
from gpuclusters.tenancy.program_accounts import Accounts, Program

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


def attack(target: Target) -> Iterator[Finding]:
    """Every attempt of every tenant of the cluster.

    Raises:
        AdapterError: the API server is not reached, or the kubeconfig may not ask.
    """
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


def _ready(tenant: str, tenancy: Mapping[str, Any]) -> Finding:
    status = tenancy.get("status") or {}
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    current = status.get("observedGeneration") == tenancy["metadata"].get("generation")
    good = ready is not None and ready["status"] == "True" and current
    said = ready["message"] or ready["reason"] if ready else "no condition"
    return Finding(
        "enforcement",
        tenant,
        "live with isolation that is written down and not enforced",
        Outcome.REFUSED if good else Outcome.SUCCEEDED,
        said if current else f"{said} (of an older specification)",
    )


def _rights(
    target: Target, tenant: str, tenancy: Mapping[str, Any], others: Mapping[str, Any]
) -> Iterator[Finding]:
    own = tenancy["spec"]["namespace"]
    controllers = target.accounts.namespace(Program.CONTROLLERS)
    # A cluster with one tenant has no other namespace of that kind; that of the controllers stands in.
    other = next((one["spec"]["namespace"] for one in others.values()), controllers)
    user = f"system:serviceaccount:{own}:default"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
    for access in intrusion.accesses(own, other, controllers):
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "resource": access.resource,
            "subresource": access.subresource,
            "namespace": access.namespace,
            "name": access.object_name,
        }
        allowed = target.objects.may(user, groups, {k: v for k, v in attributes.items() if v})
        yield Finding(
            "rights",
            tenant,
            access.name,
            Outcome.SUCCEEDED if allowed else Outcome.REFUSED,
            f"{user} may {'' if allowed else 'not '}{access.verb} {access.resource}",
        )


def _pods(target: Target, tenant: str, tenancy: Mapping[str, Any]) -> Iterator[Finding]:
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
        yield Finding("pods", tenant, "leave the VM by a pod", Outcome.NOT_TRIED, why)
        return
    for attempt in intrusion.forbidden_pods(sound, node=target.node, gpu_resource=resource):
        refused = target.objects.try_pod(spec["namespace"], attempt.pod)
        # A quota that is used up refuses everything, which proves nothing about this pod.
        if refused is not None and "exceeded quota" in refused:
            outcome = Outcome.NOT_TRIED
        else:
            outcome = Outcome.SUCCEEDED if refused is None else Outcome.REFUSED
        yield Finding("pods", tenant, attempt.name, outcome, refused or "accepted")


def _network(target: Target, tenant: str, tenancy: Mapping[str, Any]) -> Iterator[Finding]:
    found = target.objects.list(NETWORK_POLICY, tenancy["spec"]["namespace"])
    by_name = {policy["metadata"]["name"]: policy for policy in found}
    isolating = by_name.get(POLICY)
    conditions = ((isolating or {}).get("status") or {}).get("conditions") or ()
    valid = any(c["type"] == "Valid" and c["status"] == "True" for c in conditions)
    yield Finding(
        "network",
        tenant,
        "reach others because no policy closes both directions",
        Outcome.REFUSED if valid else Outcome.SUCCEEDED,
        f"policies in force: {', '.join(sorted(by_name)) or 'none'}",
    )


def _leases(target: Target) -> Iterator[Finding]:
    for lease in target.objects.list(GPU_LEASE):
        name = lease["metadata"]["name"]
        for attempt in intrusion.forbidden_lease_changes(lease):
            refused = target.objects.try_status(GPU_LEASE, name, attempt.status)
            yield Finding(
                "leases",
                "an administrator",
                f"{name}: {attempt.name}",
                Outcome.SUCCEEDED if refused is None else Outcome.REFUSED,
                refused or "accepted",
            )


def _api(
    target: Target, tenant: str, tenancy: Mapping[str, Any], others: Mapping[str, Any]
) -> Iterator[Finding]:
    api, token = target.api, target.tokens.get(tenant)
    if api is None or token is None:
        why = "no address of the API was given" if api is None else f"no token of {tenant} is known"
        yield Finding("api", tenant, "misuse the public API", Outcome.NOT_TRIED, why)
        return
    try:
        sources = tenancy["spec"].get("images") or ()
        yield from _api_attempts(target, api, tenant, sources, others)
    except AdapterError as error:
        yield Finding("api", tenant, "misuse the public API", Outcome.NOT_TRIED, str(error))


def strangers(target: Target) -> Iterator[Finding]:
    """What anybody who reaches the API would try. The flood is last: the API limits us afterwards."""
    api = target.api
    if api is None:
        return
    try:
        for path in _OPERATION:
            answer = api.call("GET", path, None)
            outcome = Outcome.SUCCEEDED if answer.status == HTTPStatus.OK else Outcome.REFUSED
            yield Finding("api", _ANYONE, f"read {path} of the API", outcome, answer.said)
        sent, limited = 0, False
        while sent < _FLOOD and not limited:
            answer = api.call("GET", "/v1/containers", None)
            sent, limited = sent + 1, answer.status == HTTPStatus.TOO_MANY_REQUESTS
        outcome = Outcome.REFUSED if limited else Outcome.SUCCEEDED
        said = f"{answer.said}; after {sent} requests"
        yield Finding("api", _ANYONE, "ask without a token as often as it likes", outcome, said)
    except AdapterError as error:
        yield Finding("api", _ANYONE, "misuse the public API", Outcome.NOT_TRIED, str(error))


def _api_attempts(
    target: Target,
    api: ContainerApi,
    tenant: str,
    sources: Sequence[str],
    others: Mapping[str, Any],
) -> Iterator[Finding]:
    token = target.tokens[tenant]

    def finding(attempt: str, answer: Answer, *, refused: bool) -> Finding:
        outcome = Outcome.REFUSED if refused else Outcome.SUCCEEDED
        return Finding("api", tenant, attempt, outcome, answer.said)

    for attempt, bad in (
        ("come without a token", None),
        ("come with a token that is signed by nobody", _unsigned(token)),
        ("come with a token whose tenant was changed", _changed(token, target.tenant_claim)),
    ):
        answer = api.call("GET", "/v1/containers", bad)
        # Limited is refused too: others without a token may have asked from the same address.
        yield finding(attempt, answer, refused=answer.status in (401, 429))
    second = next((target.tokens[name] for name in others if name in target.tokens), token)
    answer = api.call("GET", "/v1/containers", token, second_token=second)
    yield finding("come with two tokens at once", answer, refused=answer.status == 400)

    sound = image.example(sources)
    # Of what the operator lists an attempt proves nothing.
    elsewhere = [one for one in _ELSEWHERE if not image.is_allowed(one, sources)]
    body = {"image": sound, "gpus": 1}
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
        answer = api.call("POST", "/v1/containers", token, {**body, **field})
        if answer.status in (201, 202):
            api.call("DELETE", f"/v1/containers/{answer.body['id']}", token)
        yield finding(attempt, answer, refused=answer.status in (400, 422))

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
                kept = api.call("GET", f"/v1/containers/{one['id']}", theirs).body
                same = (answer.status, _title(answer)) == (never.status, _title(never))
                yield finding(
                    attempt, answer, refused=same and (kept or {}).get("state") != "deleting"
                )


def _title(answer: Answer) -> Any:
    return answer.body.get("title") if isinstance(answer.body, Mapping) else None


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    header, payload, signature = token.split(".")
    return json.loads(_decoded(header)), json.loads(_decoded(payload)), signature


def _unsigned(token: str) -> str:
    header, payload, _ = _parts(token)
    return f"{_encoded(header | {'alg': 'none'})}.{_encoded(payload)}."


def _changed(token: str, claim: str) -> str:
    header, payload, signature = _parts(token)
    return f"{_encoded(header)}.{_encoded(payload | {claim: 'somebody-else'})}.{signature}"


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
