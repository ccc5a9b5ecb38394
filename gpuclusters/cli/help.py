"""Options of several commands, and the examples at the end of their help."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
import yaml

from gpuclusters.core.model import LOADER

PROGRAM = "gpu-clusters"


def stacks(incomplete: str) -> list[str]:
    """Names of the stack files of the project around the working directory, for completion."""
    folders = (Path.cwd(), *Path.cwd().parents)
    project = next((one for one in folders if (one / "Pulumi.yaml").is_file()), Path.cwd())
    names = (path.name.split(".")[1] for path in project.glob("Pulumi.*.yaml"))
    return sorted(name for name in names if name.startswith(incomplete))


StackName = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        envvar="PULUMI_STACK",
        help="Which Pulumi.<stack>.yaml.",
        autocompletion=stacks,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EXAMPLES: Mapping[str, Mapping[str, str]] = yaml.load(
    Path(__file__).with_name("examples.yaml").read_text(encoding="utf-8"),
    LOADER,  # noqa: S506 (a safe one)
)
"""By command without the program's name; what is typed, and why."""


def epilog(path: str) -> str | None:
    """Examples as they stand at the end of the help; None if there are none."""
    lines = []
    for line, why in EXAMPLES.get(path, {}).items():
        lines += [*([f"  # {why}"] if why else []), f"  {line}"]
    return "\n".join(["Examples:", *lines]) if lines else None
