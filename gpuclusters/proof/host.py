"""Rungs 1 to 4 of the ladder on a host over SSH, by `gpuclusters/proof/scripts/ladder.sh`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuclusters.core import scripts
from gpuclusters.host.script import command_error
from gpuclusters.host.ssh import SshHost
from gpuclusters.proof import ladder_hosts
from gpuclusters.proof.jobs import PROGRAMS
from gpuclusters.proof.ladder import HOST_RUNGS, CheckLevel
from gpuclusters.proof.ladder_hosts import HostAnswers
from gpuclusters.rootless.model import DEFAULT_PROBE_IMAGE

PROGRAM = "ladder.sh"
TIMEOUT_SECONDS = 600.0
"""The image of rung 3 may have to be pulled, through a user-space network."""


def ask(
    host: SshHost,
    account: str,
    highest: CheckLevel = HOST_RUNGS[-1],
    image: str = DEFAULT_PROBE_IMAGE,
) -> HostAnswers:
    """What the host says, up to a rung.

    Args:
        host: which; its own account, or one that may become the account by `sudo`.
        account: that everything rootless runs as.
        highest: the last rung that is asked for.
        image: that rung 3 runs with all GPUs; it needs nothing but a libc.

    Raises:
        AdapterError: not reached, or the script could not run at all.
    """
    tried = "climb the ladder's rungs on the host"
    become = [] if host.connection.user == account else ["sudo", "-n", "-u", account]
    done = host.run(
        [*become, "sh", "-s", "--", image, str(min(highest, HOST_RUNGS[-1]).value)],
        tried=tried,
        stdin=scripts.read(f"proof/{PROGRAM}").encode(),
        repeatable=True,
        timeout_seconds=TIMEOUT_SECONDS,
        as_root=False,
    )
    if done.status != 0:
        raise command_error(host, tried, done)
    return ladder_hosts.parse(done.stdout.decode(errors="replace"))


def texts(names: Iterable[str] = tuple(PROGRAMS.values())) -> Mapping[str, str]:
    """Text by file name."""
    return {name: scripts.read(f"proof/{name}") for name in names}
