"""Which provider serves what, and what functions answer: with real programs and a real plugin.

Reference: pulumi/pulumi, pkg/resource/deploy/source_eval.go (default providers by version,
Invoke), sdk/python/lib/pulumi/resource.py (providers of components); pulumi.com/docs, "Explicit
provider configuration".
"""

from __future__ import annotations

from typing import Any

from tests.engine.processkit import PROGRAMS, Engine, engine

__all__ = ["engine"]


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
    engine.program(PROGRAMS["providers"])
    engine.up()
    assert providers(engine.state()["resources"]) == {
        "child": "mine",
        "grandchild": "mine",
        "stubborn": "other",
        "alone": "default",
        "old": "default_1_2_3",
    }
    # Another default provider of the same package is no reason for a new object.
    engine.program(PROGRAMS["another version"])
    engine.up()
    assert providers(engine.state()["resources"]) == {"old": "default_1_3_0"}
    ids = [r["id"] for r in engine.state()["resources"] if r["type"] == "odd:index:Odd"]
    assert ids == ["1"]
