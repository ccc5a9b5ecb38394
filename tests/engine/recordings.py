"""Recorded states of Pulumi's own engine, made into states again."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.values import REFERENCE, SECRET, SIGNATURE

FOLDER = Path(__file__).parent / "reference"
STEPS = [
    (file.parent.name, json.loads(line))
    for file in sorted(FOLDER.glob("scenarios/*/expected.jsonl"))
    for line in file.read_text().splitlines()
]
"""Scenarios and what was recorded of each of their steps."""
SCENARIOS = sorted({scenario for scenario, _ in STEPS})


def load(name: str) -> ModuleType:
    """A module of the reference, which is no package."""
    spec = importlib.util.spec_from_file_location(f"reference_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(FOLDER))
    try:
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def pickled(name: str) -> str:
    """What a dynamic provider of this class looks like in a state."""
    module, _, attribute = name.rpartition(".")
    return base64.b64encode(f"\x80\x02c{module}\n{attribute}\n.".encode("latin-1")).decode()


def provider_id(number: str) -> str:
    """The id that stands for `<provider-id-N>`."""
    return str(uuid.UUID(int=int(number) | 4 << 76 | 2 << 62))


def normalised(export: Any, folder: Path) -> Any:
    """An export in the form of the recordings, its made-up provider ids numbered as there."""
    normaliser = load("normalise").Normaliser(str(folder))
    numbers = map(str, range(1, 10))
    normaliser.provider_ids = {provider_id(n): f"<provider-id-{n}>" for n in numbers}
    return normaliser.state(export)


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
        for number in map(str, range(9, 0, -1)):
            value = value.replace(f"<provider-id-{number}>", provider_id(number))
        return value
    if not isinstance(value, dict):
        return value
    if "$provider" in value:
        name = value["$provider"]
        return providers.get(name) or pickled(name)
    if "$secret" in value:
        plain = json.dumps(_real(value["$secret"], providers))
        return {SIGNATURE: SECRET, "plaintext": plain}
    if "$resource" in value:
        reference = _real(value["$resource"], providers)
        return {SIGNATURE: REFERENCE, **reference}
    return {key: _real(item, providers) for key, item in value.items()}
