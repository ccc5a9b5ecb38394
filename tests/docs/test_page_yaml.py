"""YAML blocks of the pages: whole configurations are right, parts have known keys and values.

A block that names its cluster type is whole, unless `…` or `...` stands for something left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuclusters.config.stack import StackConfig, check_stack_file
from gpuclusters.review.cost import price_table
from tests.docs.pages import ROOT, Block, blocks, pages

YAML = [pytest.param(b, id=b.id) for page in pages() for b in blocks(page) if b.language == "yaml"]
SCHEMA = json.loads((ROOT / "gpuclusters/config/schema.json").read_text())
KEYS = SCHEMA["properties"]["config"]["properties"]
OPEN = {"required", "pattern", "minLength", "minItems", "default"}
"""What a part of a configuration need not keep: it leaves keys out, and `…` stands for values."""


def relaxed(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {
            key: {name: relaxed(one) for name, one in value.items()}
            if key in ("properties", "$defs")
            else relaxed(value)
            for key, value in schema.items()
            if key not in OPEN
        }
    return [relaxed(one) for one in schema] if isinstance(schema, list) else schema


DEFINITIONS = relaxed(SCHEMA["$defs"])


def faults(part: Mapping[str, Any]) -> Iterator[str]:
    """What no section of the configuration knows of a part of one; nothing if one section knows all of it."""
    stack = part.get("config", part)
    if any(str(key).startswith("gpu-clusters:") for key in stack):
        closed = {"properties": relaxed(KEYS), "additionalProperties": False}
        places = [closed]
    else:
        places = [d for d in DEFINITIONS.values() if set(stack) <= set(d.get("properties", ()))]
    readers = [jsonschema.Draft202012Validator({**p, "$defs": DEFINITIONS}) for p in places]
    said = [[one.message for one in reader.iter_errors(stack)] for reader in readers]
    if not places:
        yield f"no section has the keys {', '.join(stack)}"
    elif all(said):
        yield from min(said, key=len)


@pytest.mark.parametrize("block", YAML)
def test_a_block_could_stand_in_a_stack_file(block: Block, tmp_path: Path) -> None:
    written = yaml.safe_load(block.text)
    if "as-of" in written:
        assert price_table(written)
        return
    assert list(faults(written)) == []
    whole = "gpu-clusters:cluster-type" in written.get("config", written)
    if whole and not any(mark in block.text for mark in ("…", "...")):
        file = tmp_path / "Pulumi.page.yaml"
        file.write_text(yaml.safe_dump({"config": written.get("config", written)}))
        read = check_stack_file(file)
        assert isinstance(read, StackConfig), read


def test_there_are_whole_configurations() -> None:
    assert sum("cluster-type:" in one.values[0].text for one in YAML) >= 5


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"kubernetes": {"source": "rke3"}}, "rke3"),
        ({"gpu-clusters:caas": {"nodes": [{"nmae": "x"}]}}, "nmae"),
        ({"gpu-clusters:caasx": {}}, "caasx"),
        ({"partition-layuot": [8]}, "no section has the keys partition-layuot"),
    ],
)
def test_a_wrong_block_is_noticed(part: Mapping[str, Any], said: str) -> None:
    assert any(said in fault for fault in faults(part))
