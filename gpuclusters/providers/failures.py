"""How a failed step reaches the user: in our words, without a secret.

A defect of ours leaves its traceback on the provider's standard error.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gpuclusters.core.errors import AdapterError, labelled, with_code
from gpuclusters.core.finding import Refused
from gpuclusters.fabric.answers import FabricError

# Shorter texts would make the message unreadable and are no secret worth the name.
SHORTEST_SECRET = 12
SECRET_KEY = re.compile(r"token|password|secret|key-data|certificate-data", re.IGNORECASE)


class StepError(Exception):
    """What the engine shows for a failed step."""


class InvalidStateError(Exception):
    """What the state or the program says cannot be worked with; only without a check before."""

    error_id = "step.invalid-state"


FOR_THE_USER = (AdapterError, Refused, FabricError, InvalidStateError)
"""Errors whose text is written for the user. All others are defects of this program."""


@contextmanager
def explained(step: str, secrets: Iterable[str]) -> Iterator[None]:
    """Turn what goes wrong inside into a `StepError` without secrets, neither whole nor by line."""
    try:
        yield
    except StepError:
        raise
    except FOR_THE_USER as error:
        raise StepError(scrubbed(labelled(error), secrets)) from None
    except Exception as error:  # noqa: BLE001 (the last place that can keep secrets out of it)
        sys.stderr.write(scrubbed("".join(traceback.format_exception(error)), secrets))
        told = (
            f"{step}: a defect in this program "
            f"({type(error).__name__}: {scrubbed(str(error), secrets)}); "
            "report it together with the traceback on the provider's standard error"
        )
        raise StepError(with_code(told, "step.defect")) from None


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, their lines, and the values of keys that name a secret."""
    pieces: set[str] = set()
    for secret in secrets:
        pieces.add(secret)
        for line in secret.splitlines():
            pieces.add(line.strip())
            key, _, value = line.partition(": ")
            if SECRET_KEY.search(key):
                pieces.add(value.strip().strip("'\""))
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) >= SHORTEST_SECRET:
            text = text.replace(piece, "[secret]")
    return text
