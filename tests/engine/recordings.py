"""Recorded states of Pulumi's own engine, made into states again."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any

from engine.values import REFERENCE, SECRET, SIGNATURE
from tests.engine.reference import run

SCENARIOS = sorted(file.parent.name for file in run.SCENARIOS.glob("*/expected.jsonl"))
STEPS = [(scenario, step) for scenario in SCENARIOS for step in run.recorded(scenario)]
"""Scenarios and what was recorded of each of their steps."""


def export_of(recorded: Mapping[str, Any], providers: Mapping[str, str]) -> dict[str, Any]:
    """A recorded state as an export with its secrets in the clear.

    `providers` are pickled providers by the names of their classes; others are made up.
    """
    deployment = _real(recorded["deployment"], providers)
    # The recording has left out the salt.
    deployment.pop("secrets_providers", None)
    return {**recorded, "deployment": deployment}


def _real(value: Any, providers: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_real(item, providers) for item in value]
    if isinstance(value, str):
        for number in range(9, 0, -1):
            id_ = uuid.UUID(int=number | 4 << 76 | 2 << 62)
            value = value.replace(f"<provider-id-{number}>", str(id_))
        return value
    if not isinstance(value, dict):
        return value
    if "$provider" in value:
        name = value["$provider"]
        module, _, attribute = name.rpartition(".")
        made_up = f"\x80\x02c{module}\n{attribute}\n.".encode("latin-1")
        return providers.get(name) or base64.b64encode(made_up).decode()
    if "$secret" in value:
        plain = json.dumps(_real(value["$secret"], providers))
        return {SIGNATURE: SECRET, "plaintext": plain}
    if "$resource" in value:
        reference = _real(value["$resource"], providers)
        return {SIGNATURE: REFERENCE, **reference}
    return {key: _real(item, providers) for key, item in value.items()}
