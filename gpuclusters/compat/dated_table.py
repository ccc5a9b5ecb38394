"""Tables that decisions are made from, as files of the package: how they are read, and what a row is.

`sources` of a table names what was read, by a short id. `source: ID` in a mapping is the source of everything
below it; the nearest one counts.
"""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.model import LOADER
from gpuclusters.core.naming import kebab

FOLDER = Path(__file__).with_name("data")
SOURCE, SOURCES = "source", "sources"


class Row(BaseModel):
    """A row of a table: unknown keys are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=kebab)


class Source(Row):
    at: str = Field(min_length=1)
    """Repository and path, page or document."""
    release: str = Field(min_length=1)
    """Its release, tag, commit or edition."""
    date: date
    """Of that release; of the reading, where the source has no date."""

    def __str__(self) -> str:
        return f"{self.at}, {self.release} ({self.date})"


class Table(Row):
    """What every table has beside its rows."""

    sources: Mapping[str, Source] = Field(min_length=1)

    @classmethod
    def packaged(cls, name: str) -> Self:
        """The table of this name as it is packaged."""
        return cls.model_validate(document(name))

    @property
    def as_of(self) -> date:
        """The date of the newest source: nothing later is known here."""
        return max(one.date for one in self.sources.values())


def written(name: str) -> Any:
    """The table of this name as it stands in its file."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=LOADER)  # noqa: S506 -- both are safe ones


def document(name: str) -> Any:
    """The table of this name without the notes that say where each row is from."""
    found = written(name)
    return {SOURCES: found[SOURCES], **bare(found)}


def bare(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: bare(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if key not in (SOURCE, SOURCES)
    }
