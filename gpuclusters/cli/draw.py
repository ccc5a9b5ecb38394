"""`gpu-clusters draw`: the cluster of a stack as a picture."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuclusters.cli import files
from gpuclusters.cli.errors import RunError, wrong_option
from gpuclusters.cli.help import StackName
from gpuclusters.cli.project import Project, open_session, read_valid
from gpuclusters.config.gke import GkeConfig
from gpuclusters.drawing.from_configuration import declared, with_state
from gpuclusters.drawing.svg import svg
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.lease.model import GPU_LEASE


def command(
    stack: StackName = "dev",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write it; default: to the terminal."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="As the state knows it, not as the configuration says.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="With --live: also ask the cluster which tenant holds which GPU."),
    ] = None,
) -> None:
    """Draw the cluster of a stack as SVG: machines, boards, GPUs, partitions, tenants, control plane."""
    if kubeconfig is not None and not live:
        raise wrong_option(
            "--kubeconfig is for --live: a configuration does not know who holds what"
        )
    project = Project.find()
    config = read_valid(project, stack)
    if live and isinstance(config.section, GkeConfig):
        raise wrong_option("--live: Google names the nodes of a gke cluster; draw it without")
    picture = declared(config.section, "live" if live else "as configured")
    if live:
        picture = with_state(picture, _outputs(project, stack), _held(kubeconfig))
    text = svg(picture)
    if output is None:
        sys.stdout.write(text)
    else:
        files.write(output, text)
        sys.stderr.write(f"drawn: {output}\n")


def _outputs(project: Project, stack: str) -> Mapping[str, Any]:
    outputs = open_session(project, stack).read("stack", "output")
    if not outputs:
        raise RunError(
            f"the stack {stack} has no outputs yet; run `gpu-clusters up` first",
            "command.no-outputs",
        )
    found: Mapping[str, Any] = outputs
    return found


def _held(kubeconfig: Path | None) -> dict[tuple[str, int], str]:
    """Tenant by machine and module, from the leases in the cluster."""
    if kubeconfig is None:
        return {}
    text = files.read(kubeconfig, "the kubeconfig ")
    held = {}
    for lease in KubernetesObjects(text).list(GPU_LEASE):
        spec, status = lease.get("spec") or {}, lease.get("status") or {}
        holder = status.get("holder") or {}
        if holder.get("tenant"):
            held[str(spec["node"]), int(spec["module"])] = str(holder["tenant"])
    return held
