"""What exists after an `up` in the lab, and what to try next."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gpuclusters.cli.project import Project


def show(
    console: Console,
    *,
    project: Project,
    stack: str,
    outputs: Mapping[str, Any],
    unchanged: bool,
) -> None:
    """Print the table of what exists and three things to try."""
    console.print()
    if unchanged:
        console.print("[bold]no changes[/bold]: everything is as the configuration says")
    console.print(_table(project, stack, outputs))
    kubeconfig = _relative(project, "kubeconfig")
    command = _called_as(project)
    console.print("\n[bold]try[/bold]")
    for line, why in (
        (f"kubectl --kubeconfig {kubeconfig} get tenancies,resourcequotas,cnp -A", "the tenants"),
        (f"{command} lab exec hgx-01 fmpm -l", "what the fabric manager says is active"),
        (
            f"edit partition-layout in Pulumi.{stack}.yaml, then: {command} preview --diff",
            "a true diff before anything happens",
        ),
    ):
        console.print(f"  {line}\n    [dim]{why}[/dim]", soft_wrap=True)


def _table(project: Project, stack: str, outputs: Mapping[str, Any]) -> Table:
    table = Table(title=f"stack {stack}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("kubeconfig", _relative(project, "kubeconfig"))
    for host, facts in sorted((outputs.get("hosts") or {}).items()):
        active = ", ".join(str(int(number)) for number in facts["active_partitions"])
        table.add_row(f"host {host}", f"{len(facts['cdi_devices'])} GPUs, partitions {active}")
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
