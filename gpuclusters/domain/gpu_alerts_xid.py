"""Which XIDs wake somebody up.

The driver reports what went wrong on a GPU as an XID. What NVIDIA's catalogue calls for at once decides
(`data/xids.yaml`): a code pages if the GPU or the machine has to be reset, and nobody hears of one that calls
for nothing or for another start of the application. Everything else is worth a look in working hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuclusters.domain.dated_table import Row, Table, document


class Urgency(StrEnum):
    """What an XID leads to."""

    PAGE = "page"
    LOOK = "look"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Xid:
    """One code."""

    number: int
    urgency: Urgency
    meaning: str
    action: str


class _Row(Row):
    nvidia: str
    """The immediate action of NVIDIA's catalogue."""
    meaning: str
    do: str
    leads_to: Urgency | None = None


class _Xids(Table):
    leads_to: Mapping[Urgency, tuple[str, ...]]
    xids: Mapping[int, _Row]

    def urgency(self, row: _Row) -> Urgency:
        """What a code leads to.

        Raises:
            ValueError: NVIDIA's action is in no group.
        """
        if row.leads_to is not None:
            return row.leads_to
        for urgency, actions in self.leads_to.items():
            if row.nvidia in actions:
                return urgency
        raise ValueError(f"{row.nvidia} leads to nothing: xids.yaml, leads-to")


def _read() -> tuple[Xid, ...]:
    table = _Xids.model_validate(document("xids"))
    return tuple(
        Xid(number, table.urgency(row), row.meaning, row.do) for number, row in table.xids.items()
    )


XIDS: tuple[Xid, ...] = _read()


def pattern(urgency: Urgency) -> str:
    """These codes as a regular expression of PromQL."""
    return "|".join(str(one.number) for one in XIDS if one.urgency is urgency)
