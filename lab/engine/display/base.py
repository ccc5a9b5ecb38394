"""What a display is: it is shown every event of a run and says so on the terminal or as JSON."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from lab.engine.display.masking import Masker
from lab.engine.events import Diagnostic, Event, Prelude
from lab.engine.state import STACK_TYPE

ANNOUNCEMENT = (
    "Embedded engine: a subset of the Pulumi engine; the state is Pulumi's, `pulumi` can take over."
)


@dataclasses.dataclass(frozen=True)
class Options:
    """What of a run is to be shown, and as what.

    `config` has secrets as ``[secret]``. `operation` is ``update``, ``refresh`` or ``destroy``.
    """

    operation: str
    stack: str
    project: str
    preview: bool
    config: Mapping[str, str]
    mask: Masker
    colour: bool = False
    show_same: bool = False
    show_replacement_steps: bool = False
    debug: bool = False


class Display:
    """Shows the events of one run; `show` is called from several threads, one at a time."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(failed=error is not None)

    def show(self, event: Event) -> None:
        """Take one event."""
        raise NotImplementedError

    def close(self, *, failed: bool) -> None:
        """The run is over; `failed`: it ended without its last events."""

    def notice(self, text: str) -> None:
        """Tell the user something that is no event."""
        print(text, file=sys.stderr, flush=True)

    def prepared(self, event: Event) -> Event:
        """The event without secrets in its texts."""
        if isinstance(event, Prelude):
            # The engine knows only whole secrets; of a mapping just the secret parts are hidden.
            return Prelude(self.options.config)
        if isinstance(event, Diagnostic):
            return dataclasses.replace(event, message=self.options.mask.text(event.message))
        return event


def is_root(urn: str) -> bool:
    """Whether a URN is that of the stack itself."""
    return f"::{STACK_TYPE}::" in urn
