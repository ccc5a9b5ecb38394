"""Stable names of errors, by which people search, link and alert: derived, never written by hand.

A class of errors is named after itself, a refusal after the function that refuses. Names that were once
released stay: `gpuclusters/errors/ids.txt` holds them, and a test compares. Pure.
"""

from __future__ import annotations

import re
import sys
from types import FrameType

_OURS = ("gpuclusters", "components", "stacks", "engine", "lab")
_ENDS = ("Error", "Refusal")
_PARTS = {"engine.": "engine", "lab.": "lab", "gpuclusters.review.": "review"}
"""Parts of the program whose classes have names that alone say too little."""


def kebab(name: str) -> str:
    """`HostKeyMismatch` and `_host_key_mismatch` as `host-key-mismatch`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name.strip("_"))
    return spaced.replace("_", "-").lower()


def of_class(kind: type[BaseException]) -> str:
    """The id of a class of errors."""
    return of_class_name(kind.__module__, kind.__name__)


def of_class_name(module: str, name: str) -> str:
    """The id of a class of errors: its name without `Error`, after that of the part that it belongs to."""
    for end in _ENDS:
        name = name.removesuffix(end) or name
    whose = next((word for part, word in _PARTS.items() if f"{module}.".startswith(part)), "")
    id_ = kebab(name)
    return id_ if id_ == whose or not whose else f"{whose}-{id_}"


def of_function(module: str, qualname: str) -> str:
    """The id of what a function refuses: `fabric-checks-require-healthy`.

    Args:
        module: dotted name.
        qualname: of the function, as Python has it.
    """
    names = [part for part in qualname.split(".") if not part.startswith("<")]
    file = kebab(module.rsplit(".", maxsplit=1)[-1].removeprefix("reconcile_"))
    name = kebab(names[-1]) if names else file
    return file if file == name else f"{file}-{name}"


def of_caller(*beneath: str) -> str:
    """The id of the function that makes an error, asked from within what makes it.

    Args:
        beneath: names of the functions between the two, `__init__` if there are none.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name in (beneath or ("__init__",)):
        frame = frame.f_back
    if frame is None:
        return "unknown"
    return of_function(str(frame.f_globals.get("__name__", "")), frame.f_code.co_qualname)


def of(error: BaseException) -> str | None:
    """The id of an error; None if it is none of ours."""
    stated = getattr(error, "error_id", None)
    if isinstance(stated, str):
        return stated
    if type(error).__module__.split(".", maxsplit=1)[0] in _OURS:
        return of_class(type(error))
    return None


def labelled(error: BaseException) -> str:
    """The text of an error with its id, which ends its first line."""
    return with_id(str(error), of(error))


def with_id(text: str, id_: str | None) -> str:
    """A message with its id at the end of its first line."""
    if not id_:
        return text
    first, newline, rest = text.partition("\n")
    return f"{first} [{id_}]{newline}{rest}"
