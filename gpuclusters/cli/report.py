"""What exists after an `up` in the lab, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping
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
    console.print("\n[bold]try[/bold]")
    for command, why in (
        (f"kubectl --kubeconfig {kubeconfig} get tenancies,resourcequotas,cnp -A", "the tenants"),
        ("gpu-clusters lab exec hgx-01 fmpm -l", "what the fabric manager says is active"),
        (
            f"edit partition-layout in Pulumi.{stack}.yaml, then: gpu-clusters preview --diff",
            "a true diff before anything happens",
        ),
    ):
        console.print(f"  {command}\n    [dim]{why}[/dim]", soft_wrap=True)


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


def _relative(project: Project, name: str) -> str:
    path = project.lab_folder / name
    return str(path.relative_to(project.folder) if path.is_relative_to(project.folder) else path)
