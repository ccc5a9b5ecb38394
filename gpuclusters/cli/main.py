"""The command `gpu-clusters`: what an operator does with a stack, from one place.

Every verb works on one stack of the project around the working directory. The engine is Pulumi's own or the
embedded one; see `engine`. Errors are one sentence on stderr and an exit code, never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from gpuclusters.cli import (
    compare,
    draw,
    drift,
    explain,
    google_token,
    init,
    inject,
    lab,
    review,
    stack,
    training_times,
    tunnel,
)
from gpuclusters.cli.errors import CommandError, RunError, tell
from gpuclusters.cli.help import AsJson, StackName, epilog
from gpuclusters.cli.project import Project
from gpuclusters.core.errors import AdapterError, labelled

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, epilog=epilog(""))


def _say_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gpu-clusters {version('gpu-clusters')}\n")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Whole GPU clusters as Pulumi stacks."""


def diagnose(
    stack_name: StackName = "dev",
    json: AsJson = False,
) -> None:
    """Check everything that `up` needs; changes nothing.

    Checks this computer, the configuration, the state, secrets, every machine (with the checks that `up`
    runs before it changes one) and the cluster. Exit code: 0 no problems, 1 warnings, 2 failures.
    """
    # What looks at everything imports everything; other commands do not wait for that.
    from gpuclusters.cli import doctor

    raise typer.Exit(doctor.run(Project.find(), stack_name, as_json=json))


def verify(
    stack_name: StackName = "dev",
    evidence: Annotated[
        Path, typer.Option("--evidence", help="Folder for the evidence, JSON and Markdown.")
    ] = Path("evidence"),
    kubeconfig: Annotated[
        Path | None, typer.Option(help="An administrator's; default: $KUBECONFIG. The lab has one.")
    ] = None,
    api: Annotated[
        str | None, typer.Option(help="Address of the public API. The lab's is known.")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(help="TENANT=FILE, a token for the API. The lab makes its own."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            help="rke2: L0 to L4; usernetes: 1 to 9; gke: 5 to 9; caas: isolation or proof; default: the "
            "configuration's."
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Only check an evidence file: unaltered, and it holds?")
    ] = None,
    json: AsJson = False,
) -> None:
    """Test the guarantees of the cluster and write evidence; exit code 1 if one does not hold.

    caas: what a hostile tenant would try, and, with `proof`, that GPUs compute in a tenant's containers.
    rke2: that every GPU works, up to a level, and is watched. usernetes: every rung of the ladder, from the
    driver of a host to a training over all nodes. gke: those from the nodes on.
    """
    from gpuclusters.cli import verify as verification

    if check is not None:
        raise typer.Exit(verification.check(check, as_json=json))
    request = verification.Request(Project.find(), stack_name, kubeconfig, api, token or (), level)
    raise typer.Exit(verification.run(request, folder=evidence, as_json=json))


_COMMANDS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "A cluster": {
        "init": init.command,
        "preview": stack.preview,
        "up": stack.up,
        "refresh": stack.refresh,
        "destroy": stack.destroy,
        "down": stack.down,
    },
    "Inspect": {
        "doctor": diagnose,
        "verify": verify,
        "drift": drift.command,
        "inject": inject.command,
        "training-times": training_times.command,
        "compare": compare.command,
        "explain": explain.command,
    },
    "Before a change": {"review": review.command, "draw": draw.command},
    "Connect": {"tunnel": tunnel.command, "google-token": google_token.command},
}
"""By heading of the help, in the order of a day."""
for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel, epilog=epilog(name))(command)
app.add_typer(lab.app, name="lab", rich_help_panel="The lab")


def main() -> None:
    """Entry point: turns our errors into one sentence and an exit code."""
    try:
        app(standalone_mode=True)
    except (CommandError, AdapterError) as error:
        tell("error", "bold red", labelled(error))
        sys.exit(error.exit_code if isinstance(error, CommandError) else RunError.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`gpu-clusters … | head`); nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
