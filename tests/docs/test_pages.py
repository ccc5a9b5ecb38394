"""Links of the pages lead somewhere, and their YAML could stand in a stack file.

A block that names its cluster type is whole, unless `…` or `...` stands for something left out; of others
each key and value is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from gpuclusters.config.stack import StackConfig, check_stack_file
from gpuclusters.review.cost import price_table
from tests.docs.pages import ROOT, Block, anchors, blocks, pages, prose

_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def faults(page: Path, root: Path = ROOT) -> list[str]:
    found = []
    for target in _LINK.findall(prose(page)):
        url = urlsplit(target)
        if url.scheme:
            if url.scheme not in ("http", "https", "mailto") or (
                url.scheme != "mailto" and "." not in url.netloc and "localhost" not in url.netloc
            ):
                found.append(f"{target} is no address")
            continue
        file = (page.parent / url.path).resolve() if url.path else page
        if not file.is_relative_to(root) or not file.exists():
            found.append(f"{target}: there is no {url.path}")
        elif url.fragment and file.suffix == ".md" and url.fragment not in anchors(file):
            found.append(f"{target}: no heading has the name {url.fragment}")
    return found


def test_links_between_pages_lead_to_files_and_headings() -> None:
    said = {str(p.relative_to(ROOT)): f for p in pages() if (f := faults(p))}
    assert said == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](nowhere.md)", "nowhere.md: there is no nowhere.md"),
        ("[a](#b)", "#b: no heading has the name b"),
        ("[a](https://exa mple)", None),
        ("[a](https://example)", "https://example is no address"),
        ("![a](p.svg)", "p.svg: there is no p.svg"),
        ("[`a`](page.md#one-two)\n\n## One, *two*", None),
        ("```\n[a](nowhere.md)\n```", None),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, text: str, said: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert faults(page, tmp_path) == ([said] if said else [])


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


def unknown(part: Mapping[str, Any]) -> Iterator[str]:
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
    assert list(unknown(written)) == []
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
    assert any(said in fault for fault in unknown(part))
