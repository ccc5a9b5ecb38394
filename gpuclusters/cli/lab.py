"""`gpu-clusters lab …`: the simulated machines and the real control plane on this one."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.help import AsJson, epilog
from gpuclusters.cli.lab_entry import Choice, Lab, described, lab_of
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.report import steps
from gpuclusters.config import programs, usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import KEY, ClusterConfig, uses_lab
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.rke2_cluster import Rke2Config, machine_names
from gpuclusters.config.rke2_plan import proof_tests
from gpuclusters.config.stack import SECTIONS, StackConfig, other_sections
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import AdapterError
from gpuclusters.proof.model import Matmul

Request = dict[str, Any]
"""What one cluster wants: `lab.service.Request` reads it."""

ANEW = "`make down`, then `make up`"
_MACHINES = {("a100-sxm4-80gb", 8): "plain-gpu-a100", ("v100-sxm2-16gb", 4): "plain-gpu-v100"}
"""Simulated machines with GPUs that carry NVIDIA's driver themselves, by product and count."""


def requests(config: ClusterConfig, others: Sequence[ClusterConfig] = ()) -> list[Request]:
    """What the chosen cluster wants; then the others of the same stack file that live in the lab.

    Their machines are there too, so that a change of type finds both what goes and what comes.
    """
    found = [_of(config)]
    for other in filter(uses_lab, others):
        try:
            found.append(_of(other))
        except UsageError:
            continue  # said when that cluster is chosen
    return found


def machine_count(wanted: Sequence[Request]) -> int:
    """How many machines a lab has that does what all of them want."""
    return len({machine["name"] for one in wanted for machine in one["machines"]})


def _of(config: ClusterConfig) -> Request:
    if isinstance(config, GkeConfig):
        raise UsageError("a gke cluster is Google's, and the lab has none", "command.not-in-lab")
    if isinstance(config, CaasConfig):
        return _caas(config)
    return _rke2(config) if isinstance(config, Rke2Config) else _usernetes(config)


def _caas(config: CaasConfig) -> Request:
    names = {node.name for node in config.nodes}
    joins = isinstance(config.kubernetes, Rke2Kubernetes)
    servers = config.kubernetes.servers if isinstance(config.kubernetes, Rke2Kubernetes) else ()
    # Labels are the stack's to give, and the installer's of Kata.
    like = {"platform": config.platform.value, "bare": joins, "joins": joins}
    plain: dict[str, str | bool] = {"platform": "plain-server", "plain": True}
    machines: list[dict[str, str | bool]] = [{"name": node.name, **like} for node in config.nodes]
    machines += [{"name": one.name, **plain} for one in servers if one.name not in names]
    proofs = [config.proof.image] if config.proof else []
    made = {"name": config.name, "machines": machines, "proofs": proofs}
    return {**made, "image": programs.image(config)}


def _rke2(config: Rke2Config) -> Request:
    platforms = {
        node: _platform(f"the pool {pool.name}", pool.gpu.product, pool.gpu.count)
        for pool in config.pools
        if pool.gpu is not None
        for node in pool.nodes
    }
    like = {"plain": True, "gpu_operator": True}
    machines = [
        {"name": name, "platform": platforms.get(name, "plain-server"), **like}
        for name in machine_names(config)
    ]
    image = proof_tests(config).get(Matmul.name, {}).get("image")
    return {"name": config.name, "machines": machines, "proofs": [image] if image else []}


def _usernetes(config: UsernetesConfig) -> Request:
    platform = _platform("usernetes.gpus", config.gpus.product, config.gpus.count)
    like = {"platform": platform, "plain": True, "rootless": True}
    names = usernetes_plan.machine_names(config)
    return {"name": config.name, "machines": [{"name": name, **like} for name in names]}


def _platform(who: str, product: str, count: int) -> str:
    known = " or ".join(f"{count} of {product}" for product, count in _MACHINES)
    try:
        return _MACHINES[product, count]
    except KeyError:
        raise UsageError(
            f"the lab has no machine with {count} of {product}, which {who} wants; "
            f"it has machines with {known}"
        ) from None


def afterwards(cluster: ClusterConfig, choice: Choice) -> str:
    """How to get real nodes where something that passes kept them away; empty where nothing did."""
    if isinstance(cluster, UsernetesConfig) or not choice.passing:
        return ""
    return f"nodes stay simulated until the lab is made anew ({ANEW}): {choice.passing}"


app = typer.Typer(
    no_args_is_help=True,
    epilog=epilog("lab"),
    help="The lab: a whole cluster on this machine.",
)

Stack = Annotated[
    str, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="Whose hosts to simulate.")
]


@contextmanager
def opened(project: Project) -> Iterator[Lab]:
    """The lab of a project; what goes wrong in it is an error of this command."""
    lab = lab_of(project)
    try:
        yield lab
    except (lab.error, AdapterError) as error:
        raise RunError(str(error)) from error


def start_for(project: Project, stack: str, config: StackConfig, console: Console) -> str:
    """Start what does not run of the lab that this configuration asks for.

    Gives what to say about its nodes when everything else is said; empty if there is nothing.
    """
    section = config.section
    file = project.stack_file(stack)
    others = other_sections(file, config.cluster_type)
    with opened(project) as lab, steps(console, keep=True) as say:
        choice = lab.choice(config.lab.nodes.value)
        if choice.refused:
            raise UsageError(
                f"{KEY}.nodes is {config.lab.nodes.value}, and {choice.why}", "lab.nodes"
            )
        wanted = requests(section, others)
        say(described(section, choice))
        if isinstance(section, CaasConfig):
            say(lab.kata(choice.kind))
        theirs = machine_count(wanted) - machine_count(wanted[:1])
        if theirs:
            types = " and ".join(
                kind.value
                for kind, known in SECTIONS.items()
                if any(isinstance(other, known.models) and uses_lab(other) for other in others)
            )
            say(
                f"{theirs} of {machine_count(wanted)} machines are of {types}, which {file.name} has too: "
                "a change of type finds them there"
            )
        lab.start(choice.kind, wanted, say)
    return afterwards(section, choice)


@app.command(epilog=epilog("lab start"))
def start(stack: Stack = "dev") -> None:
    """Start the lab without running the stack; what runs already is left alone."""
    project = Project.find()
    config = read_valid(project, stack)
    console = Console(highlight=False)
    note = start_for(project, stack, config, console)
    console.print(f"the lab runs in {project.lab_folder}; see `gpu-clusters lab status`")
    if note:
        console.print(f"note: {note}", soft_wrap=True)


@app.command(epilog=epilog("lab stop"))
def stop() -> None:
    """Stop every process of the lab; its data stays, the next start carries on."""
    project = Project.find()
    with opened(project) as lab:
        lab.stop(Console(highlight=False).print)
    Console(highlight=False).print(f"the lab in {project.lab_folder} is stopped")


@app.command(epilog=epilog("lab status"))
def status(
    as_json: AsJson = False,
) -> None:
    """Show what runs, on which ports, and where its logs are; exit code 1 if something does not run."""
    project = Project.find()
    with opened(project) as lab:
        found = lab.status()
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    elif not found:
        Console(highlight=False).print(
            f"there is no lab in {project.lab_folder}; `gpu-clusters lab start` or `make up` makes one"
        )
    else:
        show(project, found, Console(highlight=False))
    raise typer.Exit(0 if all(part["running"] for part in found) else 1)


def show(project: Project, found: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the parts of a lab as a table, what stands in for what, and where logs are."""
    console.print(f"lab in {project.lab_folder}", soft_wrap=True)
    head = ("part", "state", "where", "pid", "memory")
    rows = [
        (
            part["name"],
            "runs" if part["running"] else "down",
            part["where"],
            str(part["pid"] or ""),
            f"{part['rss-bytes'] // 2**20} MiB" if part["rss-bytes"] else "",
        )
        for part in found
    ]
    # Addresses stay whole, to be copied: lists of names alone are broken, and without a frame all of it
    # has room in eighty columns. A terminal that is narrower breaks the lines itself.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, *values in zip(head, *rows, strict=True):
        words = [word for value in values for word in value.split()]
        longest = max(map(len, (name, *(words if name == "where" else values))))
        side: JustifyMethod = "right" if name in ("pid", "memory") else "left"
        table.add_column(name, justify=side, min_width=longest, no_wrap=name != "where")
    for row in rows:
        shown = [Text(value) for value in row]
        shown[1].stylize("green" if row[1] == "runs" else "red")
        table.add_row(*shown)
    least = sum(column.min_width or 0 for column in table.columns) + 2 * len(head)
    console.width = max(console.width, least)
    console.print(table)
    for part in found:
        if part["stand-in"]:
            console.print(f"note: {part['name']}: {part['stand-in']}", soft_wrap=True)
    console.print(f"logs: {project.lab_folder / 'control_plane' / 'logs'}", soft_wrap=True)


@app.command(epilog=epilog("lab reinstall"))
def reinstall(
    host: Annotated[str, typer.Argument(help="Name of a simulated machine, for example hgx-01.")],
) -> None:
    """Install a machine's operating system anew: nothing of ours is on it, and its host key is another."""
    project = Project.find()
    with opened(project) as lab:
        lab.reinstall(host)
    Console(highlight=False).print(
        f"{host} is installed anew and shows another host key; `gpu-clusters up` prepares it again"
    )


@app.command(
    "exec",
    epilog=epilog("lab exec"),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def execute(
    host: Annotated[str, typer.Argument(help="Name of a simulated machine, for example hgx-01.")],
    command: Annotated[list[str], typer.Argument(help="What to run there.")],
) -> None:
    """Run a command on a simulated machine, over its SSH."""
    project = Project.find()
    # Everything after the host is the command, so a `--` before it arrives here too.
    line = shlex.join(command[1:] if command[0] == "--" else command)
    with opened(project) as lab:
        code = lab.execute(host, line)
    raise typer.Exit(code)
