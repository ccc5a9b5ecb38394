"""A proof as something that is kept: shown once, shown again when what it was about has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuclusters.core.finding import refused
from gpuclusters.proof import checks as proof
from gpuclusters.proof.evidence import digest
from gpuclusters.proof.run import ProofResult

_SHOWN = 12
"""Lines of an error; the rest is counted."""


def ensure(
    fingerprint: str,
    before: Mapping[str, Any],
    look: Callable[[], ProofResult],
    *,
    target: str,
    called: str,
    at: str,
) -> dict[str, Any]:
    """The outputs of a proof that holds.

    Args:
        fingerprint: of what is to be shown.
        before: outputs of the last time; a proof of the same that is not stale is not run again.
        look: runs it.
        target: the cluster, as errors name it.
        called: what the proof is called in an error: `proof L1`.
        at: time of now, RFC 3339.

    Raises:
        Refused: it does not hold; every check that failed is named.
    """
    if before.get("fingerprint") == fingerprint and not before.get("stale"):
        return {key: before[key] for key in OUTPUTS}
    found = look()
    if not found.proven:
        lines = [*proof.faults(found.checks)] or ["nothing was looked at"]
        more = f"\n  - and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        text = "".join(f"\n  - {line}" for line in lines[:_SHOWN]) + more
        raise refused(
            target,
            "proof.failed",
            f"{called} does not hold:{text}\n ",
            "correct what failed and run `up` again; `gpu-clusters verify` shows all checks",
        )
    checks = [check.document() for check in found.checks]
    return {
        "proven": True,
        "at": at,
        "checks": len(checks),
        "evidence_sha256": digest({"checks": checks, "remarks": list(found.remarks)}),
        "remarks": list(found.remarks),
        "observed": {node: dict(facts) for node, facts in found.observed.items()},
        "stale": [],
        "fingerprint": fingerprint,
    }


OUTPUTS = (
    "proven",
    "at",
    "checks",
    "evidence_sha256",
    "remarks",
    "observed",
    "stale",
    "fingerprint",
)
"""What the resource of a proof tells."""


def observe(before: Mapping[str, Any], now: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The same outputs, with what is not as it was when the proof was made.

    Args:
        before: the outputs.
        now: each node as it is.
    """
    was: Mapping[str, Mapping[str, str]] = before.get("observed") or {}
    stale = [
        f"{node}: {key} was {was.get(node, {}).get(key, 'unknown') or 'unknown'}, is {value or 'gone'}"
        for node, facts in sorted(now.items())
        for key, value in facts.items()
        if was.get(node, {}).get(key) != value
    ]
    return {key: before[key] for key in OUTPUTS if key in before} | {"stale": stale}
