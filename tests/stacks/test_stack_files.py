"""Every committed stack file declares what its golden list says; a reviewer sees changes as a diff."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pulumi
import pytest
from syrupy.assertion import SnapshotAssertion

from gpuclusters.config.stack import read_stack_file
from tests.components.recorder import Recorder
from tests.stacks.declaring import MADE_UP, PROJECT, declared

HOST = re.compile(r"hgx-\d+")
LONGEST = 120
MOST_RESOURCES = 15
"""For one machine; resources make every preview and every state larger."""
STACK_FILES = [
    *sorted(path.name for path in PROJECT.glob("Pulumi.*.yaml")),
    "tests/stacks/Pulumi.existing.yaml",
]


def keys(name: str) -> dict[str, Any]:
    found = read_stack_file(PROJECT / name)
    assert isinstance(found, dict), found
    return found


def some(keys: dict[str, Any], machines: int) -> dict[str, Any]:
    """The same stack with its first machines only: what is told to one is told to all."""
    section = keys["caas"]
    hosts = {**section["hosts"], "machines": section["hosts"]["machines"][:machines]}
    return {**keys, "caas": {**section, "hosts": hosts, "nodes": section["nodes"][:machines]}}


@cache
def previewed(name: str) -> Recorder:
    """What a stack file declares; that takes seconds, so only once."""
    return declared(keys(name), preview=True)


def written(value: Any) -> str:
    """An input as a line: what is long is told by its digest, what is not known yet by a question mark."""
    text = json.dumps(value, sort_keys=True, default=lambda _: "?", ensure_ascii=False)
    if len(text) <= LONGEST:
        return text
    return f"{len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}"


@pytest.mark.parametrize("name", STACK_FILES)
def test_a_stack_file_declares_exactly_this(name: str, snapshot: SnapshotAssertion) -> None:
    """Types, names and inputs; of machines that are alike, those of the first."""
    engine = previewed(name)
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for one in sorted(engine.seen, key=lambda one: one.name):
        alike.setdefault(f"{one.type} {HOST.sub('HOST', one.name)}", []).append(one.inputs)
    lines = []
    for title, inputs in sorted(alike.items()):
        lines.append(f"{title} × {len(inputs)}" if len(inputs) > 1 else title)
        stated = {key: value for key, value in inputs[0].items() if value is not None}
        lines += [f"    {key}: {written(value)}" for key, value in sorted(stated.items())]
    assert "\n".join(lines) == snapshot


def test_machines_have_few_resources_each_and_all_the_same_number() -> None:
    engine = previewed("Pulumi.hgx-h100.yaml")
    each = Counter(match[0] for r in engine.seen if (match := HOST.match(r.name)))
    assert len(each) == 10
    assert len(set(each.values())) == 1
    assert max(each.values()) <= MOST_RESOURCES


def test_a_stack_in_a_lab_that_does_not_run_can_be_previewed_and_not_deployed() -> None:
    assert previewed("Pulumi.dev.yaml").seen
    with pytest.raises(pulumi.RunError, match="the lab is not running"):
        declared(keys("Pulumi.dev.yaml"), preview=False)


def test_secrets_reach_only_those_who_need_them() -> None:
    engine = declared(some(keys("Pulumi.hgx-h100.yaml"), 3), preview=False)
    assert {r.type for r in engine.seen if MADE_UP in str(r.inputs)} == {
        "kubernetes:core/v1:Secret",
        "pulumi:providers:kubernetes",
        "command:remote:Command",
        "gpu-clusters:gpu:TenancyPolicy",
    }


@pytest.mark.parametrize("name", STACK_FILES)
def test_every_object_says_who_applies_it_so_that_a_lost_one_is_taken_up_again(name: str) -> None:
    engine = previewed(name)
    if name == "Pulumi.gke-v100.yaml":
        # What runs in that cluster beside the proof is Google's.
        assert not [r for r in engine.seen if "kubernetes" in r.type]
        return
    (provider,) = engine.of("pulumi:providers:kubernetes").values()
    assert provider["upsertExistingObjects"] == "true"
    assert provider.get("enablePatchForce") in (None, "false"), "it would override strangers"
    objects = [
        r
        for r in engine.seen
        if r.type.startswith("kubernetes:") and not r.type.endswith(":Release")
    ]
    assert objects
    for one in objects:
        manager = one.inputs["metadata"]["annotations"]["pulumi.com/patchFieldManager"]
        # The program's own providers apply to nodes as `gpu-clusters`.
        assert manager == ("gpu-clusters-patch" if one.type.endswith("Patch") else "gpu-clusters")
