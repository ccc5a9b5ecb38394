"""What steps and plans need of a provider, and the one that knows nothing."""

from __future__ import annotations

from typing import Protocol

from lab.engine.answers import Checked, Comparison, Failure, Live, Subject
from lab.engine.diff import Changes, Diff, resolve_unknown
from lab.engine.values import Values


class ResourceProvider(Protocol):
    """What steps and plans need of a provider."""

    supports_preview: bool

    def check(self, subject: Subject, olds: Values, news: Values, *, seed: bytes) -> Checked:
        """See `Provider.check`."""

    def diff(self, wanted: Comparison) -> Diff:
        """See `Provider.diff`."""

    def create(
        self, subject: Subject, inputs: Values, *, timeout: float, preview: bool
    ) -> tuple[str, Values]:
        """See `Provider.create`."""

    def read(self, subject: Subject, id_: str, inputs: Values, outputs: Values) -> Live:
        """See `Provider.read`."""

    def update(self, wanted: Comparison, *, timeout: float, preview: bool) -> Values:
        """See `Provider.update`."""

    def delete(
        self, subject: Subject, id_: str, *, inputs: Values, outputs: Values, timeout: float
    ) -> None:
        """See `Provider.delete`."""

    def invoke(
        self, token: str, args: Values, *, preview: bool
    ) -> tuple[Values, tuple[Failure, ...]]:
        """See `Provider.invoke`."""


def compare(provider: ResourceProvider, wanted: Comparison) -> Diff:
    """The difference as the provider sees it; where it leaves that to the engine, of the inputs.

    Raises:
        ProviderError: the provider does not answer.
        IgnoreChangesError: an ignored property cannot be put back.
    """
    diff = provider.diff(wanted)
    return resolve_unknown(diff, wanted.old_inputs, wanted.news, wanted.ignored)


class Unconfigured:
    """Stands for a provider whose configuration a preview cannot know: everything is unknown."""

    supports_preview = True

    def check(self, subject: Subject, olds: Values, news: Values, *, seed: bytes) -> Checked:  # noqa: ARG002
        """Nothing is refused."""
        return Checked(news)

    def diff(self, *_: object, **__: object) -> Diff:
        """The engine has to compare."""
        return Diff(Changes.UNKNOWN)

    def create(self, *_: object, **__: object) -> tuple[str, Values]:
        """Nothing is known of what will be there."""
        return "", {}

    def update(self, *_: object, **__: object) -> Values:
        """Nothing is known of what will be there."""
        return {}

    def read(self, subject: Subject, id_: str, inputs: Values, outputs: Values) -> Live:  # noqa: ARG002
        """What is there cannot be looked at."""
        return Live(id_, {}, None)

    def delete(self, *_: object, **__: object) -> None:
        """A preview deletes nothing."""

    def invoke(self, *_: object, **__: object) -> tuple[Values, tuple[Failure, ...]]:
        """No function can be called."""
        return {}, ()
