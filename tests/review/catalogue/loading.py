"""The plans of the catalogue, by name: recorded ones, and those made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.review.catalogue import handmade

FOLDER = Path(__file__).parent
SHOWN = "protect-removed"
"""In a file of its own, which docs/cli.md shows."""
BASE = "nothing"
"""The recording in which nothing changes; the others leave out what stays as it is there."""
SWITCHED = "type-switched"
HANDMADE = handmade.MADE["plans"]


def names() -> list[str]:
    return sorted({*_recorded(), *HANDMADE, SWITCHED})


def _recorded() -> dict[str, dict[str, Any]]:
    shown = json.loads((FOLDER / f"{SHOWN}.json").read_text())
    return {SHOWN: shown, **json.loads((FOLDER / "plans.json").read_text())}


def document(name: str) -> dict[str, Any]:
    """The whole document, as `preview --json` would print it."""
    if name == SWITCHED:
        return _switched()
    if name in HANDMADE:
        return handmade.document(name)
    plans = _recorded()
    found = plans[name]
    if found.pop("rest-as-in", None):
        known = {step["urn"] for step in found["steps"]} | set(found.pop("not-there", []))
        found["steps"] += [step for step in plans[BASE]["steps"] if step["urn"] not in known]
    return found


def text(name: str) -> str:
    return json.dumps(document(name))


def _switched() -> dict[str, Any]:
    """The recorded caas cluster goes, the rke2 cluster comes."""
    gone = [
        {"op": "delete", "urn": step["urn"], "oldState": step["oldState"]}
        for step in document(BASE)["steps"]
        if step["oldState"]["type"] != "pulumi:pulumi:Stack"
    ]
    section = json.dumps({"name": "a100"})
    config = {"gpu-clusters:cluster-type": "rke2", "gpu-clusters:rke2": section}
    return handmade.plan(*gone, *handmade.rke2("create"), config=config)
