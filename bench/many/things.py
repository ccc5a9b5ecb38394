"""A provider that does nothing, so that what is timed is the engine."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider


class NothingProvider(ResourceProvider):
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        return CreateResult(str(props["number"]), dict(props))


class Nothing(Resource, module="bench", name="Nothing"):
    number: pulumi.Output[int]

    def __init__(self, name: str, number: int) -> None:
        super().__init__(NothingProvider(), name, {"number": number})


class Slow(pulumi.CustomResource):
    """A resource of the plugin in `tests/engine/oddity`, whose create takes a second."""

    answer: pulumi.Output[str]

    def __init__(self, name: str) -> None:
        super().__init__("odd:index:Odd", name, {"answer": "slow"})
