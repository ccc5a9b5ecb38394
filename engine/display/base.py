"""What every display has: its options, no secrets in what it prints, colours where they are wanted."""

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from engine.events import Diagnostic, Event, Prelude
from engine.state import STACK_TYPE

MASK = "[secret]"
# Shorter texts are left alone: masking every "on" would make the output unreadable.
SHORTEST = 3
_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
    "bright_red": "91",
    "bright_green": "92",
}


class Masker:
    """Replaces the plain text of secrets, wherever it stands, as Pulumi does."""

    def __init__(self, secrets: Iterable[str]) -> None:
        hidden: set[str] = set()
        for secret in secrets:
            if len(secret) >= SHORTEST and secret.lower() not in ("true", "false"):
                # A secret may stand inside of a JSON text as well.
                hidden |= {
                    secret,
                    json.dumps(secret)[1:-1],
                    json.dumps(secret, ensure_ascii=False)[1:-1],
                }
        longest_first = sorted(hidden, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if hidden else None

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """JSON data without the secrets; keys stay as they are."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return value


class Painter:
    """Puts colour codes around a text, or does not."""

    def __init__(self, *, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, colour: str) -> str:
        """The text in a colour; an empty name leaves it as it is."""
        if not self._on or not colour:
            return text
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


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
