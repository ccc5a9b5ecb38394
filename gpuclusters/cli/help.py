"""How the help of the command is arranged: groups of commands in the order of a day, and examples.

Everything is added to the commands by their names, so that a new command appears by itself, under "More".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from typer.core import TyperGroup

from gpuclusters.core.model import LOADER

PROGRAM = "gpu-clusters"


def _stacks() -> list[str]:
    """Names of the stack files of the project around the working directory, for completion."""
    folders = (Path.cwd(), *Path.cwd().parents)
    project = next((one for one in folders if (one / "Pulumi.yaml").is_file()), Path.cwd())
    return sorted(path.name.split(".")[1] for path in project.glob("Pulumi.*.yaml"))


StackName = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        envvar="PULUMI_STACK",
        help="Which Pulumi.<stack>.yaml.",
        autocompletion=lambda incomplete: [n for n in _stacks() if n.startswith(incomplete)],
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PANELS: Mapping[str, tuple[str, ...]] = {
    "A cluster": ("init", "preview", "up", "refresh", "destroy", "down"),
    "Inspect": ("doctor", "verify", "drift", "inject", "training-times", "compare", "explain"),
    "Before a change": ("review", "draw"),
    "Connect": ("tunnel", "google-token"),
    "The lab": ("lab",),
}
MORE = "More"

EXAMPLES: Mapping[str, Mapping[str, str]] = yaml.load(
    Path(__file__).with_name("examples.yaml").read_text(encoding="utf-8"),
    LOADER,  # noqa: S506 (a safe one)
)
"""By command without the program's name; what is typed, and why."""


class Commands(TyperGroup):
    """A group whose commands stand under headings and end with examples."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the headings; what is under none comes last."""
        known = [name for names in PANELS.values() for name in names]
        here = super().list_commands(ctx)
        return [n for n in known if n in here] + [n for n in here if n not in known]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            path = " ".join([*ctx.command_path.split()[1:], cmd_name])
            arrange(command, path, top="lab" not in path.split()[:-1])
        return command


def arrange(command: Any, path: str, *, top: bool = True) -> None:
    if top and path:
        panels = (panel for panel, names in PANELS.items() if path in names)
        command.rich_help_panel = next(panels, MORE)
    command.epilog = command.epilog or epilog(path)


def epilog(path: str) -> str | None:
    """Examples as they stand at the end of the help; None if there are none."""
    lines = []
    for line, why in EXAMPLES.get(path, {}).items():
        lines += [*([f"  # {why}"] if why else []), f"  {line}"]
    return "\n".join(["Examples:", *lines]) if lines else None
