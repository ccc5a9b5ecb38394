"""What a provider is asked and what it answers.

`server` turns these into the messages of Pulumi's `ResourceProvider` service and back, so that a
provider knows neither gRPC nor protobuf.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.answers import Checked, ProviderError
from engine.stand_ins.values import Properties

if TYPE_CHECKING:
    from engine.stand_ins.engine_log import EngineLog


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

    @property
    def replaces(self) -> list[str]:
        return [path for path, kind in self.changes.items() if kind.replaces]


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
class Call:
    """What is asked about a resource; what the question does not have is empty.

    `news` are the inputs that it should have, `old_inputs` and `olds` the inputs and outputs in the
    state. In a preview is to be said what would be; no timeout is 0.
    """

    resource: Resource
    id: str = ""
    news: Properties = field(default_factory=dict)
    olds: Properties = field(default_factory=dict)
    old_inputs: Properties = field(default_factory=dict)
    ignore_changes: Sequence[str] = ()
    timeout_seconds: float = 0.0
    preview: bool = False
    seed: bytes = b""
    proposed_name: str = ""
    autonaming: bool = True


@dataclass(frozen=True)
class Found:
    """A resource as it was made or read; in a preview `id` is empty."""

    id: str
    outputs: Properties
    inputs: Properties = field(default_factory=dict)


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
    def check(self, call: Call) -> Checked:
        """Validate and complete inputs."""

    @abstractmethod
    def diff(self, call: Call) -> Diff:
        """Say what a new set of inputs changes."""

    @abstractmethod
    def create(self, call: Call) -> Found:
        """Make the resource."""

    @abstractmethod
    def update(self, call: Call) -> Properties:
        """Change the resource; the new outputs."""

    @abstractmethod
    def delete(self, call: Call) -> None:
        """Remove the resource."""

    @abstractmethod
    def read(self, call: Call) -> Found | None:
        """The live resource; None if it is gone."""

    def secrets_of(self, properties: Properties) -> Properties:
        """Properties with those parts marked secret that no message may show; others it may name."""
        return properties

    @abstractmethod
    def cancel(self) -> None:
        """Make running calls end soon."""

    @abstractmethod
    def close(self) -> None:
        """Stop what runs and remove what is only this process's."""
