"""``PULUMI_OPTION_<FLAG>``: any flag of any command, from the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any

from lab.engine.cli.refusals import FLAGS, refuse_flag
from lab.engine.usererror import ExitCode, UserError

_PREFIX = "PULUMI_OPTION_"
_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})


def switched(flag: str, value: str) -> bool:
    """Whether ``--flag=value`` switches a flag on.

    Raises:
        UserError: the value is neither true nor false.
    """
    word = value.lower()
    if word not in _TRUE | _FALSE or not word:
        raise UserError(f"{flag}={value}: write true or false", ExitCode.CONFIGURATION)
    return word in _TRUE


def truth(text: str) -> str:
    """``true`` or ``false`` from any of the words for them; the type of a flag.

    Raises:
        ArgumentTypeError: it is neither.
    """
    try:
        return "true" if switched("", text) else "false"
    except UserError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


def variable(flag: str) -> str:
    """The environment variable that stands for a long flag."""
    return _PREFIX + flag.removeprefix("--").replace("-", "_").upper()


def apply_environment(parsers: Iterable[argparse.ArgumentParser]) -> None:
    """Make what the environment says the default of each flag.

    Raises:
        UserError: a variable has a value that its flag cannot have.
    """
    if not any(name.startswith(_PREFIX) for name in os.environ):
        return
    for parser in parsers:
        for action in parser._actions:
            # A suppressed default leaves it to the same flag of the command above.
            if action.default is not argparse.SUPPRESS:
                _apply(action)


def refuse_environment() -> None:
    """Refuse variables that stand for flags which are refused.

    Raises:
        UserError: one is set to anything but false.
    """
    for flag in FLAGS:
        name = variable(flag)
        if flag.startswith("--") and os.environ.get(name, "").lower() not in _FALSE:
            refusal = refuse_flag(flag)
            raise UserError(f"{name}: {refusal}", ExitCode.CONFIGURATION)


def _apply(action: argparse.Action) -> None:
    for flag in action.option_strings:
        text = os.environ.get(variable(flag)) if flag.startswith("--") else None
        if text:
            action.default = _value(action, variable(flag), text)


def _value(action: argparse.Action, name: str, text: str) -> Any:
    if action.nargs == 0:
        return switched(name, text)
    if isinstance(action, argparse._AppendAction):
        return text.split(",")
    value: Any = text
    if callable(action.type):
        try:
            value = action.type(text)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise UserError(f"{name}={text}: {error}", ExitCode.CONFIGURATION) from error
    if action.choices is not None and value not in action.choices:
        raise UserError(
            f"{name}={text}: it is one of {', '.join(action.choices)}", ExitCode.CONFIGURATION
        )
    return value
