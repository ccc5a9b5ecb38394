"""A proof as something that is kept: shown once, shown again when what it was about has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuclusters.domain import proof, proof_run
from gpuclusters.domain.evidence import digest
from gpuclusters.domain.ports import Clock, Journal
from gpuclusters.domain.proof_inputs import ProofInputs
from gpuclusters.domain.proof_port import JobCluster
from gpuclusters.domain.refusals import RefusalError

_SHOWN = 12
"""Lines of an error; the rest is counted."""


def ensure(
    inputs: ProofInputs,
    before: Mapping[str, Any],
    cluster: JobCluster,
    clock: Clock,
    journal: Journal,
    texts: Mapping[str, str],
    at: str,
) -> dict[str, Any]:
    """The outputs of a proof that holds.

    Args:
        inputs: what is to be shown.
        before: outputs of the last time; a proof of the same that is not stale is not run again.
        cluster: where.
        clock: to wait by.
        journal: told what is waited for.
        texts: the programs, by file name.
        at: time of now, RFC 3339.

    Raises:
        RefusalError: it does not hold; every check that failed is named.
    """
    fingerprint = inputs.fingerprint
    if before.get("fingerprint") == fingerprint and not before.get("stale"):
        return {key: before[key] for key in _OUTPUTS}
    found = proof_run.run(inputs, cluster, clock, journal, texts)
    if not found.proven:
        lines = [*proof.faults(found.checks)] or ["nothing was looked at"]
        more = f"\n  - and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        text = "".join(f"\n  - {line}" for line in lines[:_SHOWN]) + more
        raise RefusalError(
            cluster.place,
            f"proof {inputs.level} does not hold:{text}\n ",
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


_OUTPUTS = (
    "proven",
    "at",
    "checks",
    "evidence_sha256",
    "remarks",
    "observed",
    "stale",
    "fingerprint",
)


def observe(inputs: ProofInputs, before: Mapping[str, Any], cluster: JobCluster) -> dict[str, Any]:
    """The same outputs, with what is not as it was when the proof was made."""
    now = proof_run.observe(inputs, cluster)
    was: Mapping[str, Mapping[str, str]] = before.get("observed") or {}
    stale = [
        f"{node}: {key} was {was.get(node, {}).get(key, 'unknown') or 'unknown'}, is {value or 'gone'}"
        for node, facts in sorted(now.items())
        for key, value in facts.items()
        if was.get(node, {}).get(key) != value
    ]
    return {key: before[key] for key in _OUTPUTS if key in before} | {"stale": stale}
