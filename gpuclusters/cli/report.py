"""What exists after an `up` in the lab, and what to try next."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gpuclusters.cli.project import Project
from gpuclusters.cli.reach import Access
from gpuclusters.fabric.manager_config import VM_ADDRESS

Say = Callable[[str], None]


@contextmanager
def steps(console: Console, *, keep: bool = False, silent: bool = False) -> Iterator[Say]:
    """Show the step that runs with the time since it began.

    `keep`: each is also a line that stays, as it is off a terminal; `silent`: nothing off a terminal.
    """
    if not console.is_terminal:
        yield nothing if silent else (lambda line: _line(console, line))
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=None)

        def say(line: str) -> None:
            if keep:
                _line(shown.console, line)
            shown.reset(task, description=line)

        yield say


def nothing(line: str) -> None:
    """For those who asked for nothing else than the result."""
    del line


def _line(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False)


Hint = tuple[str, str]


Summary = tuple[Table, Sequence[Hint]]
"""What is there after an `up`, and what to try."""


def show(console: Console, summary: Summary, *, unchanged: bool) -> None:
    table, hints = summary
    console.print()
    if unchanged:
        console.print("[bold]no changes[/bold]: everything is as the configuration says")
    console.print(table)
    console.print("\n[bold]try[/bold]")
    for line, why in hints:
        console.print(f"  {line}\n    [dim]{why}[/dim]", soft_wrap=True)


def of_caas(project: Project, stack: str, outputs: Mapping[str, Any], access: Access) -> Summary:
    """Hosts, capacity and tenants, and where each has its token."""
    table = _empty_table(project, stack)
    for host, facts in sorted((outputs.get("hosts") or {}).items()):
        active = ", ".join(str(int(number)) for number in facts["active_partitions"])
        cut = f"partitions {active}" if active else "partitions by lease"
        table.add_row(f"host {host}", f"{len(facts['cdi_devices'])} GPUs, {cut}")
    sizes = sorted((outputs.get("capacity_by_partition_size") or {}).items())
    capacity = ", ".join(f"{int(count)} × {size} GPU" for size, count in sizes)
    table.add_row("capacity", capacity or "none")
    for tenant, facts in sorted((outputs.get("tenants") or {}).items()):
        state = "isolation enforced" if facts["ready"] else "NOT READY"
        said = f"namespace {facts['namespace']}, {int(facts['gpus'])} GPUs, {state}"
        table.add_row(f"tenant {tenant}", said)
    for tenant in access.tokens:
        # The token itself would stay in scrollback and logs of CI.
        said = f"{_relative(project, f'tokens/{tenant}')}, good for a day"
        table.add_row(f"token {tenant}", said)
    hints = {
        "get tenancies,gpuleases": "tenants, and every GPU",
        "verify": "what a hostile tenant would try, and evidence of what came of it",
        "lab exec hgx-01 sudo virsh list": "the VM that holds the switches of a machine",
        f"lab exec hgx-01 fmpm --hostname {VM_ADDRESS} -l": "what the fabric manager in it says is active",
        "edit partition-layout": "a true diff before anything happens",
    }
    return table, (*_curls(project, access), *_typed(project, stack, hints))


def of_rke2(project: Project, stack: str, outputs: Mapping[str, Any]) -> Summary:
    """Nodes with their GPUs, and what was shown about them."""
    nodes: Mapping[str, Mapping[str, Any]] = outputs.get("nodes") or {}
    with_driver = [name for name, facts in sorted(nodes.items()) if facts.get("driver")]
    hints = {
        "get nodes -L gpu-clusters.dev/pool": "nodes by pool",
        "get clusterpolicies,pods -n gpu-operator": "the GPU Operator and what it runs",
        "verify": "the proof that GPUs work once more, with evidence",
        **{f"lab exec {name} nvidia-smi": "the driver on a machine" for name in with_driver[:1]},
        "edit pools": "a true diff before anything happens",
    }
    return _of_nodes(project, stack, outputs, hints)


def of_usernetes(project: Project, stack: str, outputs: Mapping[str, Any]) -> Summary:
    """Nodes with their GPUs, and how far up the ladder the proof came."""
    docker = "the Docker of an account without privileges, in which the node runs"
    some = sorted(outputs.get("nodes") or {})[:1]
    hints = {
        "get nodes -o wide": "nodes, each a container",
        "verify": "every rung of the proof once more, with evidence",
        **{f"lab exec {host} sudo -n -H -u ubuntu docker info": docker for host in some},
        "add a worker": "only its resources are made",
    }
    return _of_nodes(project, stack, outputs, hints)


def _of_nodes(
    project: Project, stack: str, outputs: Mapping[str, Any], hints: Mapping[str, str]
) -> Summary:
    table = _empty_table(project, stack)
    for name, facts in sorted((outputs.get("nodes") or {}).items()):
        allocatable = sorted((facts.get("allocatable") or {}).items())
        offered = ", ".join(f"{int(count)} {resource}" for resource, count in allocatable)
        driver = f", driver {facts['driver']}" if facts.get("driver") else ""
        table.add_row(f"{facts['role']} {name}", f"{offered or 'no GPUs'}{driver}")
    if proof := outputs.get("proof"):
        reached = proof["level"] if "level" in proof else f"rung {int(proof['rung'])}"
        table.add_row("proof", f"{reached}: {proof['verdict']}")
    return table, _typed(project, stack, hints)


def _typed(project: Project, stack: str, hints: Mapping[str, str]) -> list[Hint]:
    """Commands as they are typed in the project's folder: kubectl's, this one's, or a change of the file."""
    program = Path(sys.argv[0]).absolute()
    here = program.name == "gpu-clusters" and program.is_relative_to(project.folder)
    command = str(program.relative_to(project.folder)) if here else "gpu-clusters"
    kubectl = f"kubectl --kubeconfig {_relative(project, 'kubeconfig')}"
    typed = []
    for hint, why in hints.items():
        line = f"{kubectl} {hint}" if hint.startswith("get ") else f"{command} {hint}"
        if hint.startswith(("edit ", "add ")):
            line = f"{hint} in Pulumi.{stack}.yaml, then: {command} preview --diff"
        typed.append((line, why))
    return typed


def _curls(project: Project, access: Access) -> Iterator[Hint]:
    if access.api is None or not access.tokens:
        return
    token = _relative(project, f"tokens/{next(iter(access.tokens))}")
    options = [f'-H "Authorization: Bearer $(cat {token})"']
    if access.api.authority:
        options.append(f"--cacert {_relative(project, access.api.authority.name)}")
    if access.api.address:
        options.append(f"--connect-to ::{access.api.address}:")
    call = f"curl -s {' '.join(options)} {access.api.url}/v1"
    ask = """'{"image": "registry.example.com/train:1", "gpus": 2}'"""
    yield f"{call}/capacity", "what a tenant may have, and what is free"
    why = "run a container with two GPUs (on real machines: in a VM)"
    yield f"{call}/containers --json {ask}", why


def _empty_table(project: Project, stack: str) -> Table:
    table = Table(title=f"stack {stack}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("kubeconfig", _relative(project, "kubeconfig"))
    return table


def _relative(project: Project, name: str) -> str:
    path = project.lab_folder / name
    return str(path.relative_to(project.folder) if path.is_relative_to(project.folder) else path)
