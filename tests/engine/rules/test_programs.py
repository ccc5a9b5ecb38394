"""Which provider serves what, and what functions answer: with real programs and a real plugin.

Reference: pulumi/pulumi, pkg/resource/deploy/source_eval.go (default providers by version,
Invoke), sdk/python/lib/pulumi/resource.py (providers of components); pulumi.com/docs, "Explicit
provider configuration".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.processkit import Engine
from tests.engine.warmkit import Warm

HEAD = """\
import pulumi
class Odd(pulumi.CustomResource):
    def __init__(self, name, opts=None):
        super().__init__("odd:index:Odd", name, {"answer": name}, opts)
class Odds(pulumi.ProviderResource):
    def __init__(self, name, opts=None):
        super().__init__("odd", name, {"room": name}, opts)
class Group(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("odd:index:Group", name, None, opts)
Options = pulumi.ResourceOptions
"""


@pytest.fixture
def engine(tmp_path: Path, warm: Warm) -> Iterator[Engine]:
    made = Engine(tmp_path, [warm.engine])
    yield made
    made.end()


def providers(resources: list[dict[str, Any]]) -> dict[str, str]:
    """The name of each resource's provider."""
    return {
        r["urn"].split("::")[-1]: r["provider"].split("::")[-2]
        for r in resources
        if r.get("provider")
    }


def test_a_resource_has_its_own_provider_or_its_parents_or_the_default_of_its_version(
    engine: Engine,
) -> None:
    engine.program(
        HEAD + "mine = Odds('mine')\nother = Odds('other')\n"
        "group = Group('group', Options(providers=[mine]))\n"
        "inner = Group('inner', Options(parent=group))\n"
        "Odd('child', Options(parent=group))\n"
        "Odd('grandchild', Options(parent=inner))\n"
        "Odd('stubborn', Options(parent=group, provider=other))\n"
        "Odd('alone')\n"
        "Odd('old', Options(version='1.2.3'))\n"
    )
    engine.up()
    assert providers(engine.state()["resources"]) == {
        "child": "mine",
        "grandchild": "mine",
        "stubborn": "other",
        "alone": "default",
        "old": "default_1_2_3",
    }
    # Another default provider of the same package is no reason for a new object.
    engine.program(HEAD + "Odd('old', Options(version='1.3.0'))\n")
    engine.up()
    assert providers(engine.state()["resources"]) == {"old": "default_1_3_0"}
    ids = [r["id"] for r in engine.state()["resources"] if r["type"] == "odd:index:Odd"]
    assert ids == ["1"]


def test_a_function_waits_for_what_its_arguments_come_from(engine: Engine) -> None:
    engine.program(
        HEAD + "made = Odd('made')\n"
        "found = pulumi.runtime.invoke_output('odd:index:echo', {'id': made.id})\n"
        "pulumi.export('found', found.apply(lambda answer: answer['id']))\n"
    )
    engine.up()
    (stack,) = (r for r in engine.state()["resources"] if r["type"] == "pulumi:pulumi:Stack")
    assert stack["outputs"] == {"found": "1"}
