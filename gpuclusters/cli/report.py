"""What exists after an `up` in the lab, and what to try next."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from gpuclusters.cli.access import Access
from gpuclusters.cli.project import Project
from gpuclusters.service_vm.model import VM_ADDRESS

Say = Callable[[str], None]
"""Tells what begins now, in one line."""


@contextmanager
def steps(console: Console, *, keep: bool = False, silent: bool = False) -> Iterator[Say]:
    """Show the step that runs with the time since it began.

    Args:
        console: where to; standard error unless the steps are the command's output.
        keep: each step is also a line of its own that stays, as it is off a terminal.
        silent: say nothing off a terminal: somebody else reads what is printed.
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


@dataclass(frozen=True, slots=True)
class Summary:
    """What is there after an `up`, by type of cluster."""

    table: Table
    hints: Sequence[tuple[str, str]]
    """Commands to try, and what each shows."""


def show(console: Console, summary: Summary, *, unchanged: bool) -> None:
    """Print the table of what exists, and what to try."""
    console.print()
    if unchanged:
        console.print("[bold]no changes[/bold]: everything is as the configuration says")
    console.print(summary.table)
    console.print("\n[bold]try[/bold]")
    for line, why in summary.hints:
        console.print(f"  {line}\n    [dim]{why}[/dim]", soft_wrap=True)


def of_caas(project: Project, stack: str, outputs: Mapping[str, Any], access: Access) -> Summary:
    """Hosts, capacity and tenants, and where each has its token."""
    kubeconfig = _relative(project, "kubeconfig")
    command = _called_as(project)
    hints = (
        *_curls(project, access),
        (f"kubectl --kubeconfig {kubeconfig} get tenancies,gpuleases", "tenants, and every GPU"),
        (f"{command} verify", "what a hostile tenant would try, and evidence of what came of it"),
        (
            f"{command} lab exec hgx-01 sudo virsh list",
            "the VM that holds the switches of a machine",
        ),
        (
            f"{command} lab exec hgx-01 fmpm --hostname {VM_ADDRESS} -l",
            "what the fabric manager in it says is active",
        ),
        (
            f"edit partition-layout in Pulumi.{stack}.yaml, then: {command} preview --diff",
            "a true diff before anything happens",
        ),
    )
    return Summary(_caas_table(project, stack, outputs, access), hints)


def of_rke2(project: Project, stack: str, outputs: Mapping[str, Any]) -> Summary:
    """Nodes with their GPUs, and what was shown about them."""
    kubeconfig = _relative(project, "kubeconfig")
    command = _called_as(project)
    nodes: Mapping[str, Mapping[str, Any]] = outputs.get("nodes") or {}
    gpu_host = next((name for name, facts in sorted(nodes.items()) if facts.get("driver")), None)
    hints = [
        (f"kubectl --kubeconfig {kubeconfig} get nodes -L gpu-clusters.dev/pool", "nodes by pool"),
        (
            f"kubectl --kubeconfig {kubeconfig} get clusterpolicies,pods -n gpu-operator",
            "the GPU Operator and what it runs",
        ),
        (f"{command} verify", "the proof that GPUs work once more, with evidence"),
    ]
    if gpu_host:
        hints.append((f"{command} lab exec {gpu_host} nvidia-smi", "the driver on a machine"))
    hints.append(
        (
            f"edit pools in Pulumi.{stack}.yaml, then: {command} preview --diff",
            "a true diff before anything happens",
        )
    )
    return Summary(_node_table(project, stack, outputs), hints)


def of_usernetes(project: Project, stack: str, outputs: Mapping[str, Any]) -> Summary:
    """Nodes with their GPUs, and how far up the ladder the proof came."""
    kubeconfig = _relative(project, "kubeconfig")
    command = _called_as(project)
    nodes: Mapping[str, Mapping[str, Any]] = outputs.get("nodes") or {}
    hints = [
        (f"kubectl --kubeconfig {kubeconfig} get nodes -o wide", "nodes, each a container"),
        (f"{command} verify", "every rung of the proof once more, with evidence"),
    ]
    if host := next(iter(sorted(nodes)), None):
        hints.append(
            (
                f"{command} lab exec {host} sudo -n -H -u ubuntu docker info",
                "the Docker of an account without privileges, in which the node runs",
            )
        )
    hints.append(
        (
            f"add a worker in Pulumi.{stack}.yaml, then: {command} preview --diff",
            "only its resources are made",
        )
    )
    return Summary(_node_table(project, stack, outputs), hints)


def _node_table(project: Project, stack: str, outputs: Mapping[str, Any]) -> Table:
    table = _empty_table(project, stack)
    for name, facts in sorted((outputs.get("nodes") or {}).items()):
        offered = ", ".join(
            f"{int(count)} {resource}"
            for resource, count in sorted((facts.get("allocatable") or {}).items())
        )
        driver = f", driver {facts['driver']}" if facts.get("driver") else ""
        table.add_row(f"{facts['role']} {name}", f"{offered or 'no GPUs'}{driver}")
    if proof := outputs.get("proof"):
        reached = proof["level"] if "level" in proof else f"rung {int(proof['rung'])}"
        table.add_row("proof", f"{reached}: {proof['verdict']}")
    return table


def _curls(project: Project, access: Access) -> Iterator[tuple[str, str]]:
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
    yield (
        f"{call}/containers --json {ask}",
        "run a container with two GPUs (on real machines: in a VM)",
    )


def _empty_table(project: Project, stack: str) -> Table:
    table = Table(title=f"stack {stack}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("kubeconfig", _relative(project, "kubeconfig"))
    return table


def _caas_table(project: Project, stack: str, outputs: Mapping[str, Any], access: Access) -> Table:
    table = _empty_table(project, stack)
    for host, facts in sorted((outputs.get("hosts") or {}).items()):
        active = ", ".join(str(int(number)) for number in facts["active_partitions"])
        cut = f"partitions {active}" if active else "partitions by lease"
        table.add_row(f"host {host}", f"{len(facts['cdi_devices'])} GPUs, {cut}")
    sizes = outputs.get("capacity_by_partition_size") or {}
    table.add_row(
        "capacity",
        ", ".join(f"{int(count)} × {size} GPU" for size, count in sorted(sizes.items())) or "none",
    )
    for tenant, facts in sorted((outputs.get("tenants") or {}).items()):
        state = "isolation enforced" if facts["ready"] else "NOT READY"
        table.add_row(
            f"tenant {tenant}",
            f"namespace {facts['namespace']}, {int(facts['gpus'])} GPUs, {state}",
        )
    for tenant in access.tokens:
        # The token itself would stay in scrollback and logs of CI.
        table.add_row(
            f"token {tenant}", f"{_relative(project, f'tokens/{tenant}')}, good for a day"
        )
    return table


def _called_as(project: Project) -> str:
    """This command as it can be typed in the project's folder."""
    program = Path(sys.argv[0]).absolute()
    if program.name != "gpu-clusters" or not program.is_relative_to(project.folder):
        return "gpu-clusters"
    return str(program.relative_to(project.folder))


def _relative(project: Project, name: str) -> str:
    path = project.lab_folder / name
    return str(path.relative_to(project.folder) if path.is_relative_to(project.folder) else path)
