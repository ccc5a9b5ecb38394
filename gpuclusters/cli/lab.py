"""`gpu-clusters lab …`: the simulated machines and the real control plane on this one."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gpuclusters.adapters.errors import AdapterError
from gpuclusters.cli.errors import LabFolderError, RealNodesError, RunError
from gpuclusters.cli.help import Commands
from gpuclusters.cli.lab_spec import spec_of
from gpuclusters.cli.progress import steps
from gpuclusters.cli.project import Project
from gpuclusters.cli.stack_config import read_valid
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.lab import KEY
from gpuclusters.config.stack import StackConfig
from gpuclusters.config.stack_file import other_sections
from gpuclusters.config.usernetes import UsernetesConfig
from lab import (
    control_plane,
    gpu_operator,
    hosts,
    issuer,
    kubelet,
    lifecycle,
    node_kind,
    nodes,
    parts,
    tools,
    usernetes,
)
from lab.hosts import remote

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="The lab: a whole cluster on this machine."
)

Stack = Annotated[
    str, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="Whose hosts to simulate.")
]


@contextmanager
def one_sentence() -> Iterator[None]:
    """What goes wrong in the lab, as an error of this command."""
    try:
        yield
    except (
        lifecycle.LabError,
        hosts.HostsError,
        control_plane.ControlPlaneError,
        issuer.IssuerError,
        kubelet.KubeletError,
        nodes.NodesError,
        gpu_operator.OperatorError,
        usernetes.UsernetesError,
        tools.ToolError,
        AdapterError,
    ) as error:
        raise RunError(str(error)) from error
    except OSError as error:
        raise LabFolderError(
            f"the lab cannot work in its folder: {error.strerror or error}"
            + (f" ({error.filename})" if error.filename else "")
        ) from error


def start_for(project: Project, stack: str, config: StackConfig, console: Console) -> None:
    """Start what does not run of the lab that this configuration asks for."""
    others = other_sections(project.stack_file(stack), config.cluster_type)
    with one_sentence(), steps(console, keep=True) as say:
        wanted = nodes.Wanted(config.lab.nodes)
        choice = node_kind.decide(project.lab_folder, wanted, nodes.machine_facts())
        if choice.refused:
            raise RealNodesError(f"{KEY}.nodes is {wanted.value}, and {choice.why}")
        spec = spec_of(config.section, others, choice.kind)
        say(_what_nodes_are(config.section, choice))
        lifecycle.start(project.lab_folder, spec, say)


def _what_nodes_are(cluster: ClusterConfig, choice: nodes.Choice) -> str:
    if isinstance(cluster, UsernetesConfig):
        return "nodes are simulated: those of usernetes are inside of containers of their hosts"
    return f"nodes are {choice.kind.value}: {choice.why}"


@app.command()
def start(stack: Stack = "dev") -> None:
    """Start the lab without running the stack; what runs already is left alone."""
    project = Project.find()
    config = read_valid(project, stack)
    console = Console(highlight=False)
    start_for(project, stack, config, console)
    console.print(f"the lab runs in {project.lab_folder}; see `gpu-clusters lab status`")


@app.command()
def stop() -> None:
    """Stop every process of the lab; its data stays, the next start carries on."""
    project = Project.find()
    with one_sentence():
        lifecycle.stop(project.lab_folder, Console(highlight=False).print)
    Console(highlight=False).print(f"the lab in {project.lab_folder} is stopped")


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what runs, on which ports, and where its logs are; exit code 1 if something does not run."""
    project = Project.find()
    with one_sentence():
        found = parts.status(project.lab_folder)
    if as_json:
        sys.stdout.write(json.dumps([part.as_json() for part in found], indent=2) + "\n")
    elif not found:
        Console(highlight=False).print(
            f"there is no lab in {project.lab_folder}; `gpu-clusters lab start` or `make up` makes one"
        )
    else:
        table = Table(title=f"lab in {project.lab_folder}", title_justify="left")
        for column in ("part", "state", "where", "pid", "memory"):
            table.add_column(column, overflow="fold")
        for part in found:
            table.add_row(
                part.name,
                "[green]runs[/green]" if part.running else "[red]does not run[/red]",
                part.where,
                str(part.pid or ""),
                f"{part.rss_bytes // 2**20} MiB" if part.rss_bytes else "",
            )
        console = Console(highlight=False)
        console.print(table)
        console.print(f"logs: {project.lab_folder / 'control_plane' / 'logs'}", soft_wrap=True)
    raise typer.Exit(0 if parts and all(part.running for part in found) else 1)


@app.command()
def reinstall(
    host: Annotated[str, typer.Argument(help="Name of a simulated machine, for example hgx-01.")],
) -> None:
    """Install a machine's operating system anew: nothing of ours is on it, and its host key is another."""
    project = Project.find()
    with one_sentence():
        lifecycle.reinstall(project.lab_folder, host)
    Console(highlight=False).print(
        f"{host} is installed anew and shows another host key; `gpu-clusters up` prepares it again"
    )


@app.command(
    "exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def execute(
    host: Annotated[str, typer.Argument(help="Name of a simulated machine, for example hgx-01.")],
    command: Annotated[list[str], typer.Argument(help="What to run there.")],
) -> None:
    """Run a command on a simulated machine, over its SSH."""
    project = Project.find()
    # Everything after the host is the command, so a `--` before it arrives here too.
    line = shlex.join(command[1:] if command[0] == "--" else command)
    with one_sentence():
        code = remote.execute(project.lab_folder / "hosts", host, line)
    raise typer.Exit(code)
