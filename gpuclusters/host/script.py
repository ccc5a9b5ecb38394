"""Runs scripts on hosts: sent over standard input, nothing is installed there."""

import base64
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from gpuclusters.compat import known_errors
from gpuclusters.core import scripts
from gpuclusters.core.errors import (
    AdapterError,
    CommandFailedError,
    InvalidAnswerError,
    error_of,
)
from gpuclusters.core.facts import Facts
from gpuclusters.host.ssh import Completed, SshHost

F = TypeVar("F", bound=Facts)

ERROR_LINES = 20

_MARKER = "GPU_CLUSTERS_CONTENT"


def script_text(name: str, content: bytes | None = None) -> str:
    """The text of a script as it is sent, with the content for its function `main`; see `run_script`."""
    if content is None:
        return scripts.read(f"{name}.sh")
    encoded = base64.encodebytes(content).decode()
    return f"{scripts.read(f'{name}.sh')}\nmain \"$@\" <<'{_MARKER}'\n{encoded}{_MARKER}\n"


def run_script(
    host: SshHost,
    name: str,
    arguments: Sequence[str],
    *,
    tried: str,
    after: Sequence[str] = (),
    content: bytes | None = None,
    repeatable: bool = False,
    accept: Sequence[int] = (0,),
    timeout_seconds: float | None = None,
    account: str = "",
    environment: Sequence[str] = (),
    area: str = "",
) -> Completed:
    """Run the script `ROOM/SCRIPT` on the host in one round trip; `AdapterError` where that fails.

    Neither `arguments` nor `environment` (`NAME=value`) may hold a secret. Scripts in `after` only define
    functions and are sent before it. `content` is given in base64 to the script's function `main` as standard
    input; it follows the script in the same stream, as a shell may read ahead. `account` runs it instead of
    root; `area` is whose `known_errors` say what a failure means. For the others see `SshHost.run`.
    """
    becoming: Sequence[str] = ()
    if account and account != host.connection.user:
        becoming = ("sudo", "-n", "-H", "-u", account)
    # An account need not be able to read the folder of the one that logs in, in which it would begin.
    text = "".join(["cd /\n", *map(script_text, after), script_text(name, content)])
    variables = ("env", *environment) if environment else ()
    completed = host.run(
        [*becoming, *variables, "sh", "-s", "--", *arguments],
        tried=tried,
        stdin=text.encode(),
        repeatable=repeatable,
        timeout_seconds=timeout_seconds,
        as_root=not account,
    )
    if completed.status not in accept:
        error = command_error(host, tried, completed)
        raise explained(error, area) if area else error
    return completed


def read_facts(model: type[F], host: SshHost, text: str, *, tried: str) -> F:
    """What an inspect script printed on the host, as its model."""
    try:
        return model.parse(text)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InvalidAnswerError(host.target, tried, problem, "look at the host") from error


def look(
    host: SshHost, model: type[F], name: str, arguments: Sequence[str], *, tried: str, **how: Any
) -> F:
    """Run a script that only reads, and what it printed as its model."""
    done = run_script(host, name, arguments, tried=tried, repeatable=True, **how)
    return read_facts(model, host, done.text, tried=tried)


def command_error(host: SshHost, tried: str, completed: Completed) -> AdapterError:
    """The error for a command that failed, with its last words."""
    words = last_lines(completed.stderr) or last_lines(completed.text)
    return error_of(host.target, tried, completed.status, words)


def explained(error: AdapterError, area: str) -> AdapterError:
    """The failure of a command with cause and remedy, as far as `known_errors` of the area has it."""
    known = known_errors.explain(area, error.problem)
    if known is None or not isinstance(error, CommandFailedError):
        return error
    problem = f"{known.cause} ({error.problem})"
    return CommandFailedError(error.where, error.tried, problem, known.remedy)


def last_lines(text: str) -> str:
    """The last lines of an output, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-ERROR_LINES:])
