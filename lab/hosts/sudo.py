"""`sudo` on a simulated host: reads its command line; the server then runs the command as root."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.hosts.call import Answer
from lab.hosts.model import USER

_KEPT = {"LANG", "TERM"}
_USAGE = "usage: sudo [-EHkn] [-u user] [VAR=value] [command [arg ...]]"


@dataclass(frozen=True, slots=True)
class Elevated:
    """The command that sudo was asked to run."""

    argv: tuple[str, ...]
    uid: int
    environment: dict[str, str]


def words(line: str) -> list[str] | None:
    """The words of a line that is nothing but one call of `sudo`; None where a shell does more."""
    if not line.startswith("sudo "):
        return None
    try:
        found = shlex.split(line)
    except ValueError:
        return None
    return found if shlex.join(found) == line else None


def parse(
    arguments: Sequence[str], environment: Mapping[str, str], users: Mapping[str, int]
) -> Elevated | Answer:
    """The command to run, or what sudo answers by itself. `users`: ids of the host's accounts."""
    uid, keep_all = 0, False
    rest = list(arguments)
    values: dict[str, str] = {}
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag == "--":
            break
        if flag in {"-V", "--version"}:
            return Answer.out("Sudo version 1.9.15p5 (stand-in of a simulated host)")
        if flag in {"-v", "--validate", "-k", "-K"} and not rest:
            return Answer()
        if flag in {"-u", "--user"} and rest:
            name = rest.pop(0)
            if name not in users:
                return Answer.error(f"sudo: unknown user {name}", 1)
            uid = users[name]
        elif flag in {"-E", "--preserve-env"}:
            keep_all = True
        elif flag not in {"-n", "--non-interactive", "-H", "--set-home", "-k"}:
            return Answer.error(f"sudo: invalid option -- '{flag.lstrip('-')}'\n{_USAGE}", 1)
    while rest and "=" in rest[0] and not rest[0].startswith(("/", "=")):
        key, _, value = rest.pop(0).partition("=")
        values[key] = value
    if not rest:
        return Answer.error(_USAGE, 1)
    kept = {key: value for key, value in environment.items() if keep_all or key in _KEPT}
    for key in ("HOME", "USER", "LOGNAME"):
        kept.pop(key, None)
    return Elevated(tuple(rest), uid, {**kept, "SUDO_USER": USER, **values})
