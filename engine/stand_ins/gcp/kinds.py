"""The kinds of resources that the stand-in knows, from `types.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

TABLE: Final = Path(__file__).with_name("types.yaml")


@dataclass(frozen=True)
class Kind:
    inputs: frozenset[str]
    required: tuple[str, ...]
    computed: tuple[str, ...]
    """Outputs that only Google knows."""
    decided: tuple[str, ...]
    """Inputs that Google decides where they are left out."""
    replaces: frozenset[str]
    """Inputs whose change makes another resource of it, `a.b` of one within another."""


@dataclass(frozen=True)
class Table:
    version: str
    options: frozenset[str]
    """Options of the provider itself, but for endpoints."""
    kinds: Mapping[str, Kind]
    """By type token."""


@cache
def table() -> Table:
    read = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    kinds = {
        token: Kind(
            inputs=frozenset(row["inputs"]),
            required=tuple(row["required"]),
            computed=tuple(row["computed"]),
            decided=tuple(row["decided"]),
            replaces=frozenset(row["replaces"]),
        )
        for token, row in read["types"].items()
    }
    return Table(read["version"], frozenset(read["options"]), kinds)
