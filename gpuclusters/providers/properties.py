"""Between property bags and values; how a failed step reaches the user: in our words, without a secret."""

import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pulumi.dynamic import CheckFailure
from pulumi.output import Unknown
from pydantic import BaseModel, ValidationError

from gpuclusters.core.errors import AdapterError, labelled, with_code
from gpuclusters.core.finding import Refused
from gpuclusters.fabric.answers import FabricError

INVALID_INPUT = "step.invalid-input"
"""Code of everything that is wrong with the inputs of a resource."""


def plain(value: Any) -> Any:
    """The value with whole floats as ints: numbers cross the wire as doubles."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def has_unknown(value: Any) -> bool:
    """Whether the value, or anything inside it, is not known yet."""
    if isinstance(value, Unknown):
        return True
    if isinstance(value, Mapping):
        return any(has_unknown(v) for v in value.values())
    if isinstance(value, list | tuple):
        return any(has_unknown(v) for v in value)
    return False


def inputs_of(model: type[BaseModel], properties: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a property bag that are inputs; outputs are left out."""
    return {k: v for k, v in plain(properties).items() if k in model.model_fields}


def failures(
    model: type[BaseModel], news: Mapping[str, Any], sensitive: Iterable[str]
) -> list[CheckFailure]:
    """A failure per fault, with path, value and what to write instead; what is unknown is not judged."""
    given = plain(news)
    try:
        model.model_validate(given, by_name=True)
    except ValidationError as error:
        return [
            _failure(fault["loc"], str(fault["msg"]), fault["input"], set(sensitive))
            for fault in error.errors(include_url=False)
            if not _is_unknown_at(given, fault["loc"])
        ]
    return []


def told(found: Iterable[CheckFailure]) -> list[CheckFailure]:
    """Failures as they are printed: each with the code that all of them share."""
    return [CheckFailure(one.property, with_code(one.reason, INVALID_INPUT)) for one in found]


def _is_unknown_at(given: Any, location: Sequence[int | str]) -> bool:
    at = given
    for step in location:
        if isinstance(at, Unknown):
            return True
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            return False
    return has_unknown(at)


def _failure(
    location: Sequence[int | str], message: str, value: Any, sensitive: set[str]
) -> CheckFailure:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    text = message.removeprefix("Value error, ")
    if not location:  # a rule over several inputs: its text begins with the first of them
        subject = re.match(r"([a-z_]+)(?:\.[A-Za-z.]+)?: ", text)
        return CheckFailure(subject.group(1) if subject else "", text)
    if location[0] in sensitive:
        return CheckFailure(path, text)
    if text.startswith("Field required"):
        return CheckFailure(path, "is missing; give it a value")
    if text.startswith("Extra inputs"):
        return CheckFailure(path, "is no input of this resource; leave it out")
    shown = repr(value)
    return CheckFailure(path, f"{text} (got {shown if len(shown) <= 200 else shown[:200] + '...'})")


def changed(model: type[BaseModel], olds: Mapping[str, Any], news: Mapping[str, Any]) -> list[str]:
    """Inputs that differ, nested as "connection.host"; unknowns do, a default equals its absence."""
    old, new = _with_defaults(model, olds), _with_defaults(model, news)
    names: list[str] = []
    for name in model.model_fields:
        one, other = old.get(name), new.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            keys = sorted(one.keys() | other.keys())
            names += [f"{name}.{k}" for k in keys if _differ(one.get(k), other.get(k))]
        elif _differ(one, other):
            names.append(name)
    return names


def _differ(one: Any, other: Any) -> bool:
    return has_unknown(other) or one != other


def _with_defaults(model: type[BaseModel], properties: Mapping[str, Any]) -> dict[str, Any]:
    given = inputs_of(model, properties)
    for name, field in model.model_fields.items():
        if given.get(name) is None and not field.is_required():
            given[name] = plain(field.get_default(call_default_factory=True, validated_data={}))
    return given


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
