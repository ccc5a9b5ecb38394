"""The JSON Schema of stack files, for editors, generated from the models.

`python -m gpuclusters.config.schema` writes it and the references in docs/. What editors
cannot know, that values fit together, is what the rules are for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gpuclusters.config import reference
from gpuclusters.config.base import Checked
from gpuclusters.config.cluster import KEY as LAB
from gpuclusters.config.cluster import LabConfig
from gpuclusters.config.stack import NAMESPACE, SECRET_KEYS, SECTIONS

SCHEMA_FILE = Path(__file__).with_name("schema.json")
_NOT_APPLIED = "Checked, not yet applied."


def schema() -> dict[str, Any]:
    """The schema of a stack file."""
    definitions: dict[str, Any] = {}
    keys: dict[str, Any] = {
        f"{NAMESPACE}:cluster-type": {
            "description": "What kind of cluster the stack declares.",
            "enum": [kind.value for kind in SECTIONS],
        }
    }
    sections: dict[str, type[BaseModel]] = {
        **{kind.value: section.model for kind, section in SECTIONS.items()},
        LAB: LabConfig,
    }
    for key, section in sections.items():
        one = section.model_json_schema(ref_template="#/$defs/{model}")
        for name, definition in {**one.pop("$defs", {}), section.__name__: one}.items():
            if definitions.setdefault(name, definition) != definition:
                raise ValueError(f"two sections have a {name}, and they differ: rename one")
        keys[f"{NAMESPACE}:{key}"] = {"$ref": f"#/$defs/{section.__name__}"}
    for section in sections.values():
        for model in reference.models(section):
            _annotate(model, definitions[model.__name__])
    for key in SECRET_KEYS:
        keys[f"{NAMESPACE}:{key}"] = {
            "description": f"A secret: pulumi config set --secret {key}",
            "type": "object",
            "properties": {"secure": {"type": "string"}},
            "required": ["secure"],
            "additionalProperties": False,
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A stack of gpu-clusters",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": keys,
                "required": [f"{NAMESPACE}:cluster-type"],
            }
        },
        "required": ["config"],
        "$defs": definitions,
    }


def _annotate(model: type[BaseModel], definition: dict[str, Any]) -> None:
    """Tell editors which keys are read by rules only, and unwrap descriptions."""
    for name, info in model.model_fields.items():
        entry = definition["properties"][info.alias or name]
        text = " ".join((info.description or "").split())
        if any(isinstance(mark, Checked) for mark in info.metadata):
            text = f"{text} {_NOT_APPLIED}"
        entry["description"] = text


def render() -> str:
    """The schema as it is committed."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the schema and the references."""
    SCHEMA_FILE.write_text(render(), encoding="utf-8")
    for kind, page in reference.PAGES.items():
        page.write_text(reference.fill(page.read_text(encoding="utf-8"), kind), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
