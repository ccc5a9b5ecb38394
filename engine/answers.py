"""What providers answer, as values of the engine."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from engine.diff import Changes, Diff
from engine.events import DiffKind, PropertyDiff
from engine.protocol import provider_pb2, status_pb2
from engine.state import ResourceState
from engine.values import Secret, Value, Values, contains_secret, reveal
from engine.wire import unmarshal

_KINDS: tuple[DiffKind, ...] = (
    "add",
    "add-replace",
    "delete",
    "delete-replace",
    "update",
    "update-replace",
)
SEED_BYTES = 32
"""How much chance a check gets, for names that nobody has chosen."""

_CHANGES = (Changes.UNKNOWN, Changes.NONE, Changes.SOME)


class ProviderError(Exception):
    """What a provider says went wrong; the message is for the user."""


class NotImplementedByProviderError(ProviderError):
    """The provider does not have this call."""


class InitFailedError(ProviderError):
    """The object exists, but did not come up: its state has to be kept."""

    def __init__(
        self, message: str, id_: str, outputs: Values, inputs: Values | None, reasons: Any
    ):
        super().__init__(message)
        self.id = id_
        self.outputs = outputs
        self.inputs = inputs
        self.reasons: tuple[str, ...] = tuple(reasons)


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """An input that the provider's check refuses."""

    property: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """The inputs with defaults, or why they will not do."""

    inputs: Values
    failures: Sequence[Failure] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """An object as it is known, and the inputs (`news`) that it should have.

    Changes of the properties in `ignored` do not count.
    """

    subject: ResourceState
    id: str
    old_inputs: Values
    old_outputs: Values
    news: Values
    ignored: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """What `read` found; `outputs` is None where there is nothing."""

    id: str
    outputs: Values | None
    inputs: Values | None


def mark_secrets(came_back: Values, sent: Mapping[str, Value]) -> Values:
    """What a provider gave back, with the secrets marked that were sent to it in the clear.

    Only names that were sent are compared: dictionaries key by key, anything else as a whole.
    """
    return {
        key: _mark(value, sent[key]) if key in sent else value for key, value in came_back.items()
    }


def _mark(value: Value, sent: Value) -> Value:
    if isinstance(value, dict) and isinstance(sent, dict):
        return mark_secrets(value, sent)
    if not isinstance(value, Secret) and contains_secret(sent):
        return Secret(reveal(value))
    return value


def failures_of(answer: Any) -> tuple[Failure, ...]:
    return tuple(Failure(f.property, f.reason) for f in answer.failures)


def diff_of(answer: provider_pb2.DiffResponse) -> Diff:
    """A provider's difference.

    Raises:
        ProviderError: it is none that this engine knows.
    """
    kinds = {d.kind for d in answer.detailedDiff.values()}
    if answer.changes not in range(len(_CHANGES)) or not kinds <= set(range(len(_KINDS))):
        raise ProviderError(
            f"the provider answered a difference that cannot be understood: state {answer.changes},"
            f" kinds {sorted(kinds)}"
        )
    detailed = {
        path: PropertyDiff(_KINDS[d.kind], d.inputDiff) for path, d in answer.detailedDiff.items()
    }
    return Diff(
        changes=_CHANGES[answer.changes],
        replace_keys=tuple(answer.replaces),
        changed_keys=tuple(answer.diffs),
        detailed=detailed if answer.hasDetailedDiff or detailed else None,
        delete_before_replace=answer.deleteBeforeReplace,
    )


def error_of(message: str, raw: bytes) -> ProviderError:
    """The error that a provider packed into the details of a status (`raw`)."""
    try:
        return _error_in(message, status_pb2.Status.FromString(raw))
    except (DecodeError, ValueError, KeyError) as error:
        return ProviderError(f"{message} (its details cannot be understood: {error})")


def _error_in(message: str, status: status_pb2.Status) -> ProviderError:
    for detail in status.details:
        if detail.Is(provider_pb2.ErrorResourceInitFailed.DESCRIPTOR):
            failed = provider_pb2.ErrorResourceInitFailed()
            detail.Unpack(failed)
            return InitFailedError(
                message,
                failed.id,
                unmarshal(failed.properties),
                unmarshal(failed.inputs) if failed.HasField("inputs") else None,
                failed.reasons,
            )
        if detail.Is(provider_pb2.ConfigureErrorMissingKeys.DESCRIPTOR):
            missing = provider_pb2.ConfigureErrorMissingKeys()
            detail.Unpack(missing)
            lines = [f"{key.name}: {key.description}" for key in missing.missingKeys]
            return ProviderError("\n".join([message, *lines]))
    return ProviderError(message)
