"""What a provider is asked and what it answers, as Python values.

`server` turns these into the messages of Pulumi's `ResourceProvider` service and back, so that a
provider knows neither gRPC nor protobuf.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.stand_ins.values import Properties

if TYPE_CHECKING:
    from engine.stand_ins.engine_log import EngineLog


class ProviderError(Exception):
    """A sentence for the user: what failed, where, with what, and what to do next."""


class PartialError(ProviderError):
    """Something was made or changed but did not become ready; the state has to keep what is known."""

    def __init__(
        self, message: str, *, id: str, properties: Properties, reasons: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.id = id
        self.properties = properties
        self.reasons = tuple(reasons) or (message,)


class Cancelled(ProviderError):  # noqa: N818 - it says what happened, not that it was an error
    """The engine asked to stop."""


class Kind(StrEnum):
    """What happens to one property; the values are the names in `PropertyDiff.Kind`."""

    ADD = "ADD"
    DELETE = "DELETE"
    UPDATE = "UPDATE"
    ADD_REPLACE = "ADD_REPLACE"
    DELETE_REPLACE = "DELETE_REPLACE"
    UPDATE_REPLACE = "UPDATE_REPLACE"

    @property
    def replaces(self) -> bool:
        """Whether this change needs a new resource."""
        return self.value.endswith("_REPLACE")

    def with_replace(self) -> Kind:
        return self if self.replaces else Kind(f"{self.value}_REPLACE")


@dataclass(frozen=True)
class Diff:
    """Changes by property path; none means that the resource stays as it is."""

    changes: Mapping[str, Kind] = field(default_factory=dict)
    delete_before_replace: bool = False
    input_diff: bool = False

    @property
    def replaces(self) -> list[str]:
        return [path for path, kind in self.changes.items() if kind.replaces]


@dataclass(frozen=True)
class Failure:
    property: str
    reason: str


@dataclass(frozen=True)
class Checked:
    """Inputs with defaults filled in, or what is wrong with them."""

    inputs: Properties
    failures: Sequence[Failure] = ()


@dataclass(frozen=True)
class Resource:
    urn: str

    @property
    def type(self) -> str:
        """Type token, e.g. `kubernetes:core/v1:Namespace`."""
        return self.urn.split("::", 3)[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        return self.urn.split("::", 3)[3]


@dataclass(frozen=True)
class CheckCall:
    """Validate and complete inputs; `olds` are the inputs in the state."""

    resource: Resource
    olds: Properties
    news: Properties
    seed: bytes = b""
    proposed_name: str = ""
    autonaming: bool = True


@dataclass(frozen=True)
class DiffCall:
    """Compare the recorded outputs and inputs with new inputs."""

    resource: Resource
    id: str
    olds: Properties
    news: Properties
    old_inputs: Properties = field(default_factory=dict)
    ignore_changes: Sequence[str] = ()


@dataclass(frozen=True)
class CreateCall:
    """Make the resource, or say what would be made."""

    resource: Resource
    inputs: Properties
    timeout_seconds: float = 0.0
    preview: bool = False


@dataclass(frozen=True)
class UpdateCall:
    """Change the resource, or say what it would be."""

    resource: Resource
    id: str
    olds: Properties
    news: Properties
    old_inputs: Properties = field(default_factory=dict)
    timeout_seconds: float = 0.0
    ignore_changes: Sequence[str] = ()
    preview: bool = False


@dataclass(frozen=True)
class DeleteCall:
    """Remove the resource; what is gone already counts as removed."""

    resource: Resource
    id: str
    outputs: Properties
    old_inputs: Properties = field(default_factory=dict)
    timeout_seconds: float = 0.0


@dataclass(frozen=True)
class ReadCall:
    """Look at the live resource; without `outputs` and `inputs` this is an import."""

    resource: Resource
    id: str
    outputs: Properties
    inputs: Properties


@dataclass(frozen=True)
class Created:
    """A new resource; in a preview `id` is empty."""

    id: str
    outputs: Properties


@dataclass(frozen=True)
class Found:
    """A live resource as `Read` sees it."""

    id: str
    outputs: Properties
    inputs: Properties


class Provider(ABC):
    """One provider process's behaviour; methods are called from many threads at once."""

    name: str
    version: str
    stands_in_for: str

    def __init__(self, engine: EngineLog) -> None:
        self.engine = engine

    def check_config(self, inputs: Properties) -> Checked:
        return Checked(inputs)

    def diff_config(self, olds: Properties, news: Properties) -> Diff:
        """What changed between two sets of provider options."""
        return Diff(
            {
                key: Kind.ADD
                if key not in olds
                else Kind.DELETE
                if key not in news
                else Kind.UPDATE
                for key in sorted({*olds, *news})
                if olds.get(key) != news.get(key)
            },
        )

    @abstractmethod
    def configure(self, options: Properties) -> None:
        """Take the provider's options; called once, before any resource."""

    @abstractmethod
    def check(self, call: CheckCall) -> Checked:
        """Validate and complete inputs."""

    @abstractmethod
    def diff(self, call: DiffCall) -> Diff:
        """Say what a new set of inputs changes."""

    @abstractmethod
    def create(self, call: CreateCall) -> Created:
        """Make the resource."""

    @abstractmethod
    def update(self, call: UpdateCall) -> Properties:
        """Change the resource; the new outputs."""

    @abstractmethod
    def delete(self, call: DeleteCall) -> None:
        """Remove the resource."""

    @abstractmethod
    def read(self, call: ReadCall) -> Found | None:
        """The live resource; None if it is gone."""

    def invoke(self, token: str, arguments: Properties) -> Properties:
        del arguments
        raise ProviderError(
            f"function {token} is not part of the {self.name} stand-in; "
            f"install the Pulumi CLI to run this program with {self.stands_in_for}"
        )

    def secrets_of(self, properties: Properties) -> Properties:
        """Properties with those parts marked secret that no message may show; others it may name."""
        return properties

    @abstractmethod
    def cancel(self) -> None:
        """Make running calls end soon."""

    @abstractmethod
    def close(self) -> None:
        """Stop what runs and remove what is only this process's."""
