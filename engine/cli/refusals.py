"""What Pulumi's CLI has and this one has not: by name, with the reason and what to do instead.

A flag or a verb is either carried out or in `refusals.yaml`; none is accepted and ignored.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

from engine.usererror import ExitCode, UserError


@cache
def reasons() -> Mapping[str, str]:
    """Reasons by name: of a verb, an action with its verb, a flag, a flag with its only command."""
    table = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))
    return {name: reason for reason, names in table.items() for name in names}


def refusal(name: str, command: str = "") -> UserError | None:
    """The refusal of a verb, an action or a flag; None if Pulumi has none of that name.

    A flag is `command`'s, an action is below it.
    """
    is_flag = name.startswith("-")
    said = name if is_flag else f"`{f'{command} {name}'.strip()}`"
    reason = reasons().get(f"{command} {name}".strip()) or (is_flag and reasons().get(name))
    if not reason:
        return None
    return UserError(f"{said} is not part of the embedded engine: {reason}", ExitCode.CONFIGURATION)
