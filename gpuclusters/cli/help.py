"""How the help of the command is arranged: groups of commands in the order of a day, and examples.

Everything is added to the commands by their names, so that a new command appears by itself, under "More".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("gpu-clusters up", "a whole cluster on this computer, simulated machines included"),
        ("gpu-clusters preview --diff", "after an edit of Pulumi.dev.yaml: what would change"),
        ("gpu-clusters down", "tear it down"),
    ),
    "up": (
        ("gpu-clusters up", "the stack dev, in the lab"),
        ("gpu-clusters up --stack prod --refresh", "also put back what others changed"),
        ("gpu-clusters up --stack prod --repair", "after a run that was killed"),
        ("gpu-clusters up --stack prod --yes", "in a pipeline"),
    ),
    "init": (
        ("gpu-clusters init caas --stack prod", "asks, and reads the machines' host keys"),
        (
            "gpu-clusters init rke2 --answers answers.yaml --secret ssh-private-key=id_ed25519 "
            "--accept-host-keys",
            "for a pipeline that knows all of it",
        ),
    ),
    "preview": (
        ("gpu-clusters preview --stack hgx-h100", "an example, without an account"),
        ("gpu-clusters preview --diff", "every property, before and after"),
        ("gpu-clusters preview --expect-no-changes", "for a pipeline: exit code 7 on any change"),
    ),
    "refresh": (("gpu-clusters refresh --stack prod --yes", "then `preview` shows what drifted"),),
    "destroy": (
        ("gpu-clusters destroy --stack prod", "shows what goes, and asks"),
        ("gpu-clusters destroy --stack prod --target URN --target-dependents", "a part of it"),
    ),
    "down": (("gpu-clusters down", "the lab of the stack dev"),),
    "doctor": (
        ("gpu-clusters doctor --stack prod", "before the first `up`, or when it fails"),
        ("gpu-clusters doctor --json", "for a monitoring system"),
    ),
    "verify": (
        ("gpu-clusters verify", "in the lab nothing else is needed"),
        (
            "gpu-clusters verify --stack prod --kubeconfig admin.kubeconfig --api https://gpus.example.com "
            "--token acme=acme.jwt",
            "a caas cluster, as its tenants",
        ),
        ("gpu-clusters verify --level proof", "containers with GPUs alone, as a tenant runs them"),
        (
            "gpu-clusters verify --check evidence/isolation-prod-20261121T200000Z.json",
            "old evidence",
        ),
    ),
    "drift": (
        ("gpu-clusters drift --stack prod", "every morning; exit code 1 if anything drifted"),
        ("gpu-clusters drift --json", "the same as JSON"),
    ),
    "inject": (
        ("gpu-clusters inject", "on this computer, all modes"),
        ("gpu-clusters inject --stack prod --host gpu-1 --mode cdi", "on a machine of a stack"),
    ),
    "training-times": (
        ("gpu-clusters training-times evidence/ --svg times.svg", "a table, and a picture of it"),
    ),
    "compare": (
        (
            "gpu-clusters compare evidence/ladder-study-20261120T080000Z.json "
            "evidence/ladder-gke-v100-20261121T080000Z.json",
            "Usernetes and GKE with the same GPUs",
        ),
    ),
    "google-token": (("gpu-clusters google-token | jq .status", "what kubectl is told"),),
    "explain": (
        ("gpu-clusters explain remote.host-key-mismatch", "the code that a message ended with"),
        ("gpu-clusters explain", "all of them"),
    ),
    "review": (
        ("gpu-clusters review", "the stack dev against its configuration"),
        ("pulumi preview --json --show-sames | gpu-clusters review - --fail-on delete,replace", ""),
        ("gpu-clusters review --stack prod --output review/", "as Markdown, HTML and JSON"),
    ),
    "draw": (
        ("gpu-clusters draw --stack prod --output fleet.svg", "as configured"),
        ("gpu-clusters draw --live --kubeconfig .lab/kubeconfig", "live, with tenants"),
    ),
    "tunnel": (
        ("gpu-clusters tunnel -- kubectl get nodes", "for as long as one command runs"),
        ("gpu-clusters tunnel", "until Ctrl-C"),
    ),
    "lab": (("gpu-clusters lab start", "without running a stack"),),
    "lab start": (("gpu-clusters lab start --stack dev", "the machines that this stack names"),),
    "lab stop": (("gpu-clusters lab stop", "its data stays"),),
    "lab status": (("gpu-clusters lab status --json", "as JSON"),),
    "lab reinstall": (("gpu-clusters lab reinstall hgx-01", "then `gpu-clusters up`"),),
    "lab exec": (("gpu-clusters lab exec hgx-01 nvidia-smi", "as its operator"),),
}
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
    for line, why in EXAMPLES.get(path, ()):
        lines += [*([f"  # {why}"] if why else []), f"  {line}"]
    return "\n".join(["Examples:", *lines]) if lines else None
