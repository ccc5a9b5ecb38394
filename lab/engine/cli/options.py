"""Values of flags, and what stands for flags in the environment."""

from __future__ import annotations

import argparse
import os

from lab.engine.usererror import ExitCode, UserError

_PREFIX = "PULUMI_OPTION_"
_VARIABLES = {
    "PULUMI_DEBUG_PROVIDERS": "unset it; providers are started by the engine",
    "PULUMI_RUN_PROGRAM": "unset it, and run `up` first, which renews what providers are given",
}
_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})


def switched(flag: str, value: str) -> bool:
    """Whether ``--flag=value`` switches a flag on."""
    word = value.lower()
    if word not in _TRUE | _FALSE or not word:
        raise UserError(f"{flag}={value}: write true or false", ExitCode.CONFIGURATION)
    return word in _TRUE


def truth(text: str) -> str:
    """``true`` or ``false`` from any of the words for them; the type of a flag."""
    try:
        return "true" if switched("", text) else "false"
    except UserError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


def refuse_environment() -> None:
    """Refuse variables of Pulumi's CLI that would change a run here: ``PULUMI_OPTION_<FLAG>`` is any flag."""
    for name, instead in _VARIABLES.items():
        if os.environ.get(name):
            raise UserError(
                f"{name} is set, which is not part of the embedded engine: {instead}",
                ExitCode.CONFIGURATION,
            )
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and os.environ[name]:
            flag = name.removeprefix(_PREFIX).lower().replace("_", "-")
            raise UserError(
                f"{name} is set: the embedded engine takes no flags from the environment; unset it and"
                f" pass --{flag}",
                ExitCode.CONFIGURATION,
            )
