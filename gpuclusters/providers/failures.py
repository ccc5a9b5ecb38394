"""How a failed step reaches the user: one sentence, no secret, no traceback.

The SDK's provider process answers a failed call with `traceback.format_exc()`, and there is no
supported way to answer with a message alone. Two properties of Python shorten it to our sentence:
`sys.tracebacklimit = 0` leaves the frames out, and the last line is the name of the class, a colon
and the text, where the name of a class that says it is built in stands without its module. So the
class is named after where it happened, and the line reads as it should. The price: other dynamic
providers in the same process lose their frames too. A defect of ours still leaves its traceback on
the provider's standard error.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gpuclusters.adapters.errors import AdapterError
from gpuclusters.core.finding import Refused
from gpuclusters.domain.error_id import labelled
from gpuclusters.domain.fabric_state import FabricError
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rke2_ports import JoinError

# Shorter texts would make the message unreadable and are no secret worth the name.
SHORTEST_SECRET = 12
SECRET_KEY = re.compile(r"token|password|secret|key-data|certificate-data", re.IGNORECASE)


class StepError(Exception):
    """What the engine shows for a failed step; made by `step_error`."""


def step_error(sentence: str) -> StepError:
    """The error of which Python prints just this sentence, which begins with "where: "."""
    where, colon, rest = sentence.partition(": ")
    if not colon:
        where, rest = "failed", sentence
    kind = type(where, (StepError,), {"__module__": "builtins"})
    error: StepError = kind(rest)
    return error


def leave_out_frames() -> None:
    """In the SDK's provider process, and only there, answer failures without frames."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "pulumi.dynamic.__main__":
        sys.tracebacklimit = 0


class InvalidStateError(Exception):
    """What the state or the program says cannot be worked with; only without a check before."""


# Errors whose text is written for the user. All others are defects of this program.
FOR_THE_USER = (AdapterError, Refused, FabricError, JoinError, RefusalError, InvalidStateError)


@contextmanager
def explained(step: str, secrets: Iterable[str]) -> Iterator[None]:
    """Turn what goes wrong inside into a `StepError` without secrets.

    Args:
        step: what the provider was doing, for defects of ours.
        secrets: texts that must not be shown, whole or by line.
    """
    try:
        yield
    except FOR_THE_USER as error:
        raise step_error(scrubbed(labelled(error), secrets)) from None
    except Exception as error:  # noqa: BLE001 (the last place that can keep secrets out of it)
        sys.stderr.write(scrubbed("".join(traceback.format_exception(error)), secrets))
        raise step_error(
            f"{step}: a defect in this program "
            f"({type(error).__name__}: {scrubbed(str(error), secrets)}); "
            "report it together with the traceback on the provider's standard error [defect]"
        ) from None


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
