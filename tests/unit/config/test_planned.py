"""What components, charts and hosts are told of a configuration (planned/*.yaml)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from gpuclusters.config.stack import ClusterType
from tests.fixtures.tables import beside
from tests.unit.config.documents import accepted, document
from tests.unit.config.planning import planned

ROWS = [
    pytest.param(kind, case, id=f"{kind.value}-{name}")
    for kind in (ClusterType.CAAS, ClusterType.RKE2, ClusterType.USERNETES)
    for name, case in beside(__file__, f"planned/{kind.value}.yaml").items()
]


def at(value: Any, path: str) -> Any:
    """What is at a place; None if nothing."""
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else (value or {}).get(name)
    return value


@pytest.mark.parametrize(("kind", "case"), ROWS)
def test_what_follows_from_a_configuration(kind: ClusterType, case: dict[str, Any]) -> None:
    config = accepted(document(kind, {**case, kind.value: case.get("section", {})}))
    found = to_jsonable_python(planned(config), by_alias=False)
    for path, told in case.get("told", {}).items():
        assert at(found, path) == told, path
    for path, one in case.get("among", {}).items():
        assert one in at(found, path), path
