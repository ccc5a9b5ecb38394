"""Tables that decisions are made from, as files of the package: how they are read, and what a row is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it was built: a tenth of the time, at the start of every program."""
FOLDER = Path(__file__).with_name("data")


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Row(BaseModel):
    """A row of a table: unknown keys are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=_kebab)


def document(name: str) -> Any:
    """The table of this name as it is packaged."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 -- both are safe ones
