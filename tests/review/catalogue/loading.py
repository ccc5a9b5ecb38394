"""The plans of the catalogue, by name: recorded ones, and those made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.review.catalogue import handmade

PLANS = Path(__file__).with_name("plans")
BASE = "nothing"
"""The recording in which nothing changes; the others leave out what stays as it is there."""
SWITCHED = "type-switched"
HANDMADE = handmade.MADE["plans"]


def names() -> list[str]:
    return sorted({path.stem for path in PLANS.glob("*.json")} | {*HANDMADE, SWITCHED})


def document(name: str) -> dict[str, Any]:
    """The whole document, as `preview --json` would print it."""
    if name == SWITCHED:
        return _switched()
    if name in HANDMADE:
        return handmade.document(name)
    found: dict[str, Any] = json.loads((PLANS / f"{name}.json").read_text())
    if found.pop("rest-as-in", None):
        known = {step["urn"] for step in found["steps"]} | set(found.pop("not-there", []))
        base = json.loads((PLANS / f"{BASE}.json").read_text())
        found["steps"] += [step for step in base["steps"] if step["urn"] not in known]
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
