"""What a Tenancy's status says: one condition for each part of the isolation, and `Ready`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuclusters.core.finding import Finding
from gpuclusters.tenancy.proof import NOT_TRIED, Proof

READY = "Ready"
ENFORCED = "Enforced"
_MESSAGE_LIMIT = 4096

# Condition by proof.
PARTS: Mapping[str, str] = {
    "namespace": "NamespaceReady",
    "quota": "QuotaEnforced",
    "limit-range": "LimitsEnforced",
    "service-account": "AccountClosed",
    "roles": "RolesBound",
    "network-policy": "NetworkIsolated",
    "network-baseline": "NetworkIsolated",
    "network-agents": "NetworkIsolated",
    "pod-security": "PodSecurityEnforced",
    "admission-rules": "AdmissionEnforced",
    "admission-policy": "AdmissionEnforced",
    "allowed-pod": "PodsAllowed",
}

Condition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class News:
    """What an event says of a change."""

    reason: str
    note: str
    kind: Literal["Normal", "Warning"]


def conditions(proofs: Sequence[Proof], generation: int) -> list[Condition]:
    """One condition for each part, in a fixed order; `Ready` comes first."""
    parts: dict[str, list[Proof]] = {kind: [] for kind in PARTS.values()}
    for proof in proofs:
        parts[PARTS[proof.name]].append(proof)
    return [
        _condition(READY, proofs, generation),
        *(_condition(kind, its, generation) for kind, its in parts.items()),
    ]


def not_ready(reason: str, message: str, generation: int) -> Condition:
    """`Ready` of a tenancy that cannot be judged by its proofs."""
    return {
        "type": READY,
        "status": "False",
        "reason": reason,
        "message": message[:_MESSAGE_LIMIT],
        "observedGeneration": generation,
    }


def _condition(kind: str, proofs: Sequence[Proof], generation: int) -> Condition:
    faults = [(proof, proof.fault) for proof in proofs if proof.fault]
    # What has not been tried yet is a consequence of the rest, not a reason.
    telling = [pair for pair in faults if pair[1].code != NOT_TRIED] or faults
    if not telling:
        status, reason, message = "True", ENFORCED, ""
    else:
        untried = all(fault.code == NOT_TRIED for _, fault in telling)
        status = "Unknown" if untried and kind != READY else "False"
        reason = _reason(telling[0][1])
        message = "; ".join(f"{proof.name}: {fault.problem}" for proof, fault in telling)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:_MESSAGE_LIMIT],
        "observedGeneration": generation,
    }


def _reason(finding: Finding) -> str:
    """The code in the spelling of Kubernetes: `tenancy.not-observed` is `NotObserved`."""
    return finding.code.partition(".")[2].replace("-", " ").title().replace(" ", "")


def merged(new: Sequence[Condition], old: Sequence[Mapping[str, Any]], now: str) -> list[Condition]:
    """`new`, each with the time of its last change of status."""
    before = {condition["type"]: condition for condition in old}
    result = []
    for condition in new:
        known = before.get(condition["type"])
        same = known is not None and known.get("status") == condition["status"]
        since = (known or {}).get("lastTransitionTime") if same else None
        result.append({**condition, "lastTransitionTime": since or now})
    return result


def ready(tenancy: Mapping[str, Any]) -> bool:
    """Whether the controller has found everything enforced as of the object's generation."""
    generation = tenancy["metadata"].get("generation")
    found = _ready(tenancy)
    return found.get("status") == "True" and found.get("observedGeneration") == generation


def news(before: Mapping[str, Any], now: Mapping[str, Any]) -> News | None:
    """What there is to tell when a tenancy's status has changed; None unless `Ready` has."""
    found = _ready(now)
    if not found or found.get("status") == _ready(before).get("status"):
        return None
    if found["status"] == "True":
        return News("Ready", "everything that isolates the tenant is enforced", "Normal")
    ending = now["metadata"].get("deletionTimestamp")
    return News(
        "NotReady", f"{found['reason']}: {found['message']}", "Normal" if ending else "Warning"
    )


def _ready(tenancy: Mapping[str, Any]) -> Mapping[str, Any]:
    said = (tenancy.get("status") or {}).get("conditions") or ()
    return next((condition for condition in said if condition.get("type") == READY), {})
