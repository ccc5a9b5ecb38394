"""Judges `dcgmi diag -j`. A test that was skipped did not pass.

Two shapes are read: DCGM 4 (`DCGM Diagnostic`, results by entity, a `test_summary`) and DCGM 3 (`DCGM GPU
Diagnostic`, results by `gpu_id`), as in NVIDIA/DCGM's own tests of this output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.proof.checks import Check, Level, Outcome

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_WHAT = "passes DCGM's diagnostics"


def parse(log: str) -> Mapping[str, Any] | None:
    """The document in a log, whatever stands around it; None if there is none."""
    begin, end = log.find("{"), log.rfind("}")
    try:
        document = json.loads(log[begin : end + 1]) if begin >= 0 else None
    except ValueError:
        return None
    if not isinstance(document, Mapping):
        return None
    found = next((document[root] for root in _ROOTS if root in document), None)
    return found if isinstance(found, Mapping) else None


def judge(node: str, log: str, *, exit_code: int) -> Sequence[Check]:
    """A check for each test that DCGM lists."""
    found = parse(log)
    if found is None:
        said = f"exit code {exit_code}, no JSON; it said: {log.strip()[-300:] or '(nothing)'}"
        return [Check(Level.L2, node, _WHAT, Outcome.FAILED, said)]
    checks = list(_tests(node, found))
    if not checks:
        return [Check(Level.L2, node, _WHAT, Outcome.FAILED, "it lists no test")]
    if exit_code and all(check.outcome is Outcome.PASSED for check in checks):
        said = f"all tests pass, and the exit code is {exit_code}"
        checks.append(Check(Level.L2, node, _WHAT, Outcome.FAILED, said))
    return checks


def _tests(node: str, found: Mapping[str, Any]) -> Iterator[Check]:
    for category in found.get("test_categories") or ():
        for test in category.get("tests") or ():
            name = f"{category.get('category', '?')}/{test.get('name', '?')}"
            results = list(test.get("results") or ())
            summary = (test.get("test_summary") or {}).get("status")
            states = [_state(one.get("status")) for one in results]
            if summary is not None:
                states.append(_state(summary))
            outcome = _worst(states)
            said = "; ".join(_words(results)) or f"{len(results)} results, {outcome}"
            yield Check(Level.L2, node, f"{_WHAT}: {name}", outcome, said)


def _state(status: object) -> Outcome:
    match str(status).casefold():
        case "pass":
            return Outcome.PASSED
        case "skip" | "notrun" | "not run":
            return Outcome.NOT_TRIED
    return Outcome.FAILED


def _worst(states: Sequence[Outcome]) -> Outcome:
    if Outcome.FAILED in states:
        return Outcome.FAILED
    return Outcome.NOT_TRIED if Outcome.NOT_TRIED in states or not states else Outcome.PASSED


def _words(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is said about entities that did not pass."""
    for one in results:
        if _state(one.get("status")) is Outcome.PASSED:
            continue
        entity = one.get("entity_id", one.get("gpu_id"))
        where = f"{one.get('entity_group', 'GPU')} {entity}: " if entity is not None else ""
        told = [
            str(w.get("warning", w)) if isinstance(w, Mapping) else str(w)
            for w in one.get("warnings") or ()
        ]
        info = one.get("info") or ()
        told += [info] if isinstance(info, str) else [str(line) for line in info]
        yield f"{where}{one.get('status')}" + (f" ({'; '.join(told)[:300]})" if told else "")
