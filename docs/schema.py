"""The JSON Schema of stack files: `python -m docs.schema`."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from functools import cache
from itertools import chain, pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel

from gpuclusters.config.cluster import KEY as LAB
from gpuclusters.config.cluster import SECRET_KEYS, LabConfig
from gpuclusters.config.keys import SCHEMA_FILE
from gpuclusters.config.stack import NAMESPACE, SECTIONS
from gpuclusters.config.structure import sections
from gpuclusters.core.section import Section


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """A section's model and all below it, in the order in which they appear."""
    found = [root]
    for info in root.model_fields.values():
        for below in sections(info.annotation):
            found += [model for model in models(below) if model not in found]
    return found


@cache
def _meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """What stands below each key of a section, by its name.

    Read here and not by pydantic's `use_attribute_docstrings`, which reads it at every start: that costs a
    third of the time that the sections need.
    """
    said: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not issubclass(one, Section) or one is Section:
            continue
        (body,) = ast.parse(dedent(inspect.getsource(one))).body
        assert isinstance(body, ast.ClassDef)  # noqa: S101
        for key, text in pairwise(body.body):
            match key, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(meaning))),
                ):
                    said[name] = " ".join(meaning.split())
    return said


def schema() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    keys: dict[str, Any] = {
        f"{NAMESPACE}:cluster-type": {
            "description": "What kind of cluster the stack declares.",
            "enum": [kind.value for kind in SECTIONS],
        }
    }
    sections: dict[str, tuple[type[BaseModel], ...]] = {
        **{kind.value: section.models for kind, section in SECTIONS.items()},
        LAB: (LabConfig,),
    }
    for key, variants in sections.items():
        for section in variants:
            one = section.model_json_schema(ref_template="#/$defs/{model}")
            for name, definition in {**one.pop("$defs", {}), section.__name__: one}.items():
                if definitions.setdefault(name, definition) != definition:
                    raise ValueError(f"two sections have a {name}, and they differ: rename one")
        refs = [{"$ref": f"#/$defs/{section.__name__}"} for section in variants]
        keys[f"{NAMESPACE}:{key}"] = refs[0] if len(refs) == 1 else {"anyOf": refs}
    for section in chain.from_iterable(sections.values()):
        for model in models(section):
            for name, info in model.model_fields.items():
                entry = definitions[model.__name__]["properties"][info.alias or name]
                entry["description"] = _meanings(model).get(name, "")
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


def render() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    SCHEMA_FILE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
