"""Whether a document is unaltered evidence of something, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuclusters.proof import evidence_isolation, evidence_ladder, evidence_proof
from gpuclusters.proof.evidence import FORMAT, digest

_Faults = Callable[[Mapping[str, Any]], list[str]]
_Headline = Callable[[Mapping[str, Any]], str]
_KINDS: Mapping[str, tuple[_Faults, _Headline]] = {
    evidence_isolation.KIND: (evidence_isolation.faults, evidence_isolation.headline),
    evidence_proof.KIND: (evidence_proof.faults, evidence_proof.headline),
    evidence_ladder.KIND: (evidence_ladder.faults, evidence_ladder.headline),
}
_PARTS = ("cluster", "at", "stack", "program")


def faults(document: Any) -> list[str]:
    """What keeps a document from being evidence; empty if it is."""
    if not isinstance(document, Mapping) or type(document.get("format")) is not int:
        return ["is no evidence: it is no JSON object with a format"]
    version = document["format"]
    if version != FORMAT:
        newer = "; a newer gpu-clusters may read it" if version > FORMAT else ""
        return [f"is no evidence of format {FORMAT} (it says {version}){newer}"]
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return [f"is evidence of another kind ({kind!r}); this version knows {', '.join(_KINDS)}"]
    found = []
    if document.get("sha256") != digest(document):
        found.append("was altered: its digest does not fit its content")
    missing = [part for part in _PARTS if not isinstance(document.get(part), str)]
    if missing:
        found.append(f"is incomplete: it does not say {', '.join(missing)}")
    return found + _KINDS[kind][0](document)


def headline(document: Mapping[str, Any]) -> str:
    """What a document without faults shows."""
    return _KINDS[document["kind"]][1](document)
