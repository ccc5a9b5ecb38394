"""What the outside world says when something fails, and what it means: `data/known_errors/<area>.yaml`.

The first row whose pattern is found counts, so that causes stand before what follows from them.
"""

import re
from functools import cache
from typing import Any

from gpuclusters.compat import dated_table
from gpuclusters.compat.dated_table import Row

_LOUD = re.compile(r"level=(error|fatal|warning)|rror")
_MAKE = ("make:", "make[")
"""How make's own lines begin: they only say which target failed."""
_LONGEST_QUOTE = 600


class KnownError(Row):
    """One cause that a message names."""

    code: str
    """`<area>.<fault>`."""
    says: str
    """Regular expression that finds it in a message; case does not count."""
    cause: str
    remedy: str
    final: bool = False
    """Whether waiting longer cannot help."""

    def is_in(self, text: str) -> bool:
        return re.search(self.says, text, re.IGNORECASE) is not None


@cache
def known(area: str) -> tuple[KnownError, ...]:
    rows: list[Any] = dated_table.document(f"known_errors/{area}")["errors"]
    return tuple(KnownError.model_validate(row) for row in rows)


def explain(area: str, *texts: str) -> KnownError | None:
    """The first known error that one of these texts names; None if they name none."""
    said = "\n".join(texts)
    return next((error for error in known(area) if error.is_in(said)), None)


def explain_newest(area: str, log: str) -> KnownError | None:
    """The known error that the newest line of a log names, as far as one does."""
    found = (explain(area, line) for line in reversed(log.splitlines()))
    return next((error for error in found if error), None)


def advice(area: str, *texts: str) -> str:
    """Cause and remedy in one sentence; empty if nothing is known."""
    error = explain(area, *texts)
    return f"{error.cause}: {error.remedy}" if error else ""


def last_words(log: str, count: int = 1) -> str:
    """The newest lines of a log on one line: those that speak of errors, else all but make's own."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(_MAKE)]
    loud = [line for line in told if _LOUD.search(line)]
    return " | ".join((loud or told or lines)[-count:])[:_LONGEST_QUOTE]
