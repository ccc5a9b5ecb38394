"""The commands below another one: built only when the command line names them.

There are fifty, and their flags cost more time than most commands take.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class Unnamed:
    """In the place of the parser of a command that is not named: takes flags and keeps none."""

    def add_argument(self, *_names: str, **_settings: Any) -> None:
        """See `argparse.ArgumentParser.add_argument`."""

    def set_defaults(self, **_values: Any) -> None:
        """See `argparse.ArgumentParser.set_defaults`."""

    def help_alone(self) -> None:
        """See `parser.Parser.help_alone`."""

    def add_mutually_exclusive_group(self) -> Unnamed:
        """See `argparse.ArgumentParser.add_mutually_exclusive_group`."""
        return self

    def add_subparsers(self, **_settings: Any) -> Unnamed:
        """See `argparse.ArgumentParser.add_subparsers`."""
        return self

    def add_parser(self, _name: str, **_settings: Any) -> Unnamed:
        """Stand for what is below the command as well."""
        return self


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Knows the name and the help of every command, and the flags of those in `words`.

    Without `words` it knows all. A word that is there for another reason (the value of a flag) makes
    it build a command in vain, and nothing else.
    """

    def __init__(self, *, words: frozenset[str] | None, **settings: Any) -> None:
        super().__init__(**settings)
        self._words = words

    def add_parser(  # type: ignore[override]
        self, name: str, *, aliases: Sequence[str] = (), **settings: Any
    ) -> Any:
        """See `argparse._SubParsersAction.add_parser`."""
        if self._words is None or not self._words.isdisjoint((name, *aliases)):
            return super().add_parser(name, aliases=aliases, words=self._words, **settings)
        self._choices_actions.append(self._ChoicesPseudoAction(name, aliases, settings.get("help")))
        unnamed = Unnamed()
        self._name_parser_map.update(dict.fromkeys((name, *aliases), unnamed))
        return unnamed
