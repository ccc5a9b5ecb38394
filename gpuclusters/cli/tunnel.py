"""`gpu-clusters tunnel`: the API of a usernetes cluster on a port of this computer, through SSH."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.help import StackName
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.reach import reach
from gpuclusters.config import usernetes_plan
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.host.model import HostConnection

if TYPE_CHECKING:
    from gpuclusters.host.connect import SshCredentials
    from gpuclusters.host.ssh import Forward

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_BY_SIGNAL = 128


def command(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Command that needs the API; without one the tunnel stays open."),
    ] = None,
    stack: StackName = "dev",
) -> None:
    """Open a port of this computer that leads to the API of a usernetes cluster.

    It is open while the command runs, or until it is interrupted.
    """
    project = Project.find()
    config = read_valid(project, stack).section
    if not isinstance(config, UsernetesConfig):
        raise UsageError(
            f"the stack {stack} is no usernetes cluster; its kubeconfig leads to its API already",
            "command.no-tunnel",
        )
    access = usernetes_plan.api(config)
    if access.through == "loopback":
        raise UsageError(
            "the API of the lab is on this computer; its kubeconfig leads there already",
            "command.no-tunnel",
        )
    if access.through == "address" or access.local_port is None:
        raise UsageError(
            f"the API of {stack} is at {access.address}; for a tunnel state usernetes.api.through: tunnel",
            "command.no-tunnel",
        )
    with opened(*way(project, stack, config)) as tunnel:
        raise typer.Exit(hold(tunnel, command or ()))


def is_needed(config: UsernetesConfig) -> bool:
    """Whether the API is reached through a tunnel alone."""
    access = usernetes_plan.api(config)
    return access.through == "tunnel" and access.local_port is not None


def way(
    project: Project, stack: str, config: UsernetesConfig
) -> tuple[HostConnection, SshCredentials, int, int]:
    """The machine of the API, the key for it, and the tunnel's port here and there."""
    connections, credentials = reach(project, stack, config, [config.control_plane.host])
    local_port = usernetes_plan.api(config).local_port or 0
    remote_port = config.network.ports.kube_apiserver
    return connections[config.control_plane.host], credentials, local_port, remote_port


@contextlib.contextmanager
def opened(
    connection: HostConnection, credentials: SshCredentials, local_port: int, remote_port: int
) -> Iterator[Forward]:
    """A tunnel that says where it leads."""
    # Who opens none does not wait for SSH.
    from gpuclusters.host.ssh import LOOPBACK, forward

    with forward(connection, credentials, local_port=local_port, remote_port=remote_port) as tunnel:
        sys.stderr.write(f"https://{LOOPBACK}:{tunnel.port} leads to {tunnel.target}\n")
        sys.stderr.flush()
        yield tunnel


def hold(tunnel: Forward, command: Sequence[str]) -> int:
    """Keep a tunnel open while a command runs, or until interrupted; gives the exit code."""
    if command:
        return _during(command)
    with contextlib.suppress(KeyboardInterrupt):
        tunnel.wait_until_lost()
        raise RunError(f"the connection to {tunnel.target} broke; run the same command again")
    return 0


def _during(command: Sequence[str]) -> int:
    """The command's exit code, as a shell gives it."""
    try:
        process = subprocess.Popen(list(command))
    except FileNotFoundError:
        sys.stderr.write(f"{command[0]}: not found\n")
        return _NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_EXECUTABLE
    # An interrupt reaches both of us: what it means is for the command to say.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else _BY_SIGNAL - code
