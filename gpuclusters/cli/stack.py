"""`up`, `preview`, `refresh`, `destroy` and `down`: one stack, through the engine that this machine has."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from gpuclusters.cli import lab as lab_command
from gpuclusters.cli import repair as repairing
from gpuclusters.cli import report, tunnel
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.help import StackName
from gpuclusters.cli.project import (
    Project,
    Session,
    open_session,
    read_valid,
    refuse_placeholders,
)
from gpuclusters.cli.reach import open_access
from gpuclusters.cli.unfinished import BACKEND_VARIABLE, backend_url
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.stack import WITHOUT_SECRETS
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import AdapterError

NO_BACKEND = (
    "no backend: previewed against an empty state that is not kept (choose one: `pulumi login`, or "
    f"{BACKEND_VARIABLE}=file:///path/to/a/folder)"
)
EMPTY = {"same", "read"}
IN_LAB = ("--yes", "--skip-preview")
"""Nothing of a lab is worth a question."""

Refresh = Annotated[bool, typer.Option("--refresh", help="Read the real state first.")]
Repair = Annotated[
    bool,
    typer.Option("--repair", help="Repair what a killed run left behind, without asking."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is changed.")]
Target = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="URN", help="Only this resource; may be repeated."),
]
Dependents = Annotated[
    bool, typer.Option("--target-dependents", help="Also what depends on a target.")
]
Parallel = Annotated[
    int | None,
    typer.Option("--parallel", "-p", min=1, help="How many steps run at a time."),
]


def _flags(targets: Sequence[str] | None, parallel: int | None = None, **wanted: bool) -> list[str]:
    flags = [f"--{name.replace('_', '-')}" for name, on in wanted.items() if on]
    flags += [] if parallel is None else ["--parallel", str(parallel)]
    return [*flags, *(word for urn in targets or () for word in ("--target", urn))]


def up(
    stack_name: StackName = "dev",
    refresh: Refresh = False,
    yes: Yes = False,
    target: Target = None,
    target_dependents: Dependents = False,
    parallel: Parallel = None,
    repair: Repair = False,
) -> None:
    """Create or update the stack; starts the lab first if the stack uses it.

    First looks for what a killed run left behind: locks, interrupted creates, Helm releases that are stuck.
    In the lab it repairs them; elsewhere it asks, unless you pass `--repair`.
    """
    flags = _flags(target, parallel, refresh=refresh, target_dependents=target_dependents)
    session = open_session(Project.find(), stack_name, runs_program=True)
    if not session.in_lab:
        refuse_placeholders(session.project, stack_name, session.config)
    unasked = _unasked(session, yes=yes)
    with _ready(session, repair=repair) as console:
        code = session.call("up", *unasked, *flags)
        if code == 0 and session.in_lab:
            report.show(console, _summary(session), unchanged=_unchanged(session))
    section = session.config.section
    if code == 0 and isinstance(section, CaasConfig) and section.proof and section.proof.after_up:
        # What proves things imports them; an `up` that proves nothing does not wait for that.
        from gpuclusters.cli import verify

        request = verify.Request(session.project, stack_name, level=verify.CaasLevel.PROOF)
        code = verify.run(request)
    raise typer.Exit(code)


def refresh(
    stack_name: StackName = "dev",
    yes: Yes = False,
    target: Target = None,
    repair: Repair = False,
) -> None:
    """Read the real state of the resources into the stack's; changes no resource."""
    _without_program(stack_name, "refresh", _flags(target), yes=yes, repair=repair)


def destroy(
    stack_name: StackName = "dev",
    refresh: Refresh = False,
    yes: Yes = False,
    target: Target = None,
    target_dependents: Dependents = False,
    parallel: Parallel = None,
    repair: Repair = False,
) -> None:
    """Destroy the stack's resources; the stack, and the lab if it uses it, stay."""
    flags = _flags(target, parallel, refresh=refresh, target_dependents=target_dependents)
    _without_program(stack_name, "destroy", flags, yes=yes, repair=repair)


def _without_program(
    stack: str, verb: str, flags: Sequence[str], *, yes: bool, repair: bool
) -> None:
    session = open_session(Project.find(), stack)
    unasked = _unasked(session, yes=yes)
    with _ready(session, repair=repair) as console, _way_to_api(session, console):
        code = session.call(verb, *unasked, *flags)
    raise typer.Exit(code)


def _unasked(session: Session, *, yes: bool) -> Sequence[str]:
    """The flags by which the engine does not ask; refused where it would, and nobody could answer."""
    if session.in_lab:
        return IN_LAB
    agreed = session.env.get("PULUMI_SKIP_CONFIRMATIONS", "").lower() in ("1", "true")
    if yes or agreed or sys.stdin.isatty():
        return ("--yes",) if yes else ()
    said = "there is no terminal to ask at whether to go on; read the preview, then add --yes"
    raise UsageError(said, "command.nobody-to-ask")


@contextmanager
def _ready(session: Session, *, repair: bool) -> Iterator[Console]:
    """The lab runs if the stack is in one, and what a killed run left is repaired."""
    console, note = Console(highlight=False), ""
    console.print(session.engine.line, soft_wrap=True)
    if session.in_lab:
        note = lab_command.start_for(session.project, session.stack, session.config, console)
        ensure_stack(session)
    repairing.repair(session, console, asked_for=repair)
    yield console
    if note:
        console.print(f"\nnote: {note}", soft_wrap=True)


@contextmanager
def _way_to_api(session: Session, console: Console) -> Iterator[None]:
    """The tunnel that the program of a usernetes stack would hold."""
    with ExitStack() as kept:
        section = session.config.section
        if isinstance(section, UsernetesConfig) and tunnel.is_needed(section):
            try:
                way = tunnel.way(session.project, session.stack, section)
                kept.enter_context(tunnel.opened(*way))
            except AdapterError as error:
                console.print(f"note: no tunnel to the API: {error}", soft_wrap=True, markup=False)
        yield


def preview(
    stack_name: StackName = "dev",
    refresh: Refresh = False,
    target: Target = None,
    target_dependents: Dependents = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show every property.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
    expect_no_changes: Annotated[
        bool, typer.Option("--expect-no-changes", help="Exit with 7 if there are any.")
    ] = False,
) -> None:
    """Show what `up` would change; changes nothing."""
    flags = _flags(
        target,
        refresh=refresh,
        target_dependents=target_dependents,
        diff=diff,
        json=json,
        expect_no_changes=expect_no_changes,
    )
    session = open_session(Project.find(), stack_name, runs_program=True)
    console = Console(highlight=False, quiet=json)
    console.print(session.engine.line, soft_wrap=True)
    with with_state(session, console) as (ready, where):
        raise typer.Exit(ready.call("preview", *where, *flags))


@contextmanager
def with_state(session: Session, console: Console) -> Iterator[tuple[Session, Sequence[str]]]:
    """A session that has a state to preview against, and the flags that go with it."""
    if session.in_lab:
        ensure_stack(session)
    if session.in_lab or backend_url(session.project.folder, session.env):
        yield session, ()
        return
    console.print(NO_BACKEND, soft_wrap=True)
    with _without_backend(session) as (scratch, file):
        yield scratch, ("--config-file", str(file))


@contextmanager
def _without_backend(session: Session) -> Iterator[tuple[Session, Path]]:
    """The stack in a state of its own that is empty and goes again; and its configuration for that state."""
    project, name = session.project, session.project.stack_file(session.stack).name
    with tempfile.TemporaryDirectory(prefix="gpu-clusters-") as folder:
        shutil.copy(project.folder / "Pulumi.yaml", folder)
        env = {**session.env, WITHOUT_SECRETS: "1", BACKEND_VARIABLE: f"file://{folder}"}
        if "PULUMI_CONFIG_PASSPHRASE_FILE" not in env:
            env["PULUMI_CONFIG_PASSPHRASE"] = secrets.token_urlsafe()
        scratch = replace(session, env=env)
        # It writes the salt beside the Pulumi.yaml that it finds, so not in the project.
        scratch.make(Path(folder), stdout=subprocess.DEVNULL)
        file = Path(folder) / name
        salt = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        given = yaml.safe_load(project.stack_file(session.stack).read_text(encoding="utf-8"))
        file.write_text(yaml.safe_dump({**given, **salt}), encoding="utf-8")
        yield scratch, file


def down(stack_name: StackName = "dev") -> None:
    """Remove the lab with all that is in it."""
    project = Project.find()
    if not uses_lab(read_valid(project, stack_name).section):
        instead = f"`gpu-clusters destroy --stack {stack_name}` destroys its resources"
        said = f"the stack {stack_name} is not in the lab; {instead}"
        raise UsageError(said, "command.not-in-lab")
    # Hosts, cluster and state of a lab are one folder: what is declared there goes with it.
    console = Console(highlight=False)
    with lab_command.opened(project) as lab:
        there_was_one = lab.remove(console.print)
    console.print(
        f"removed the lab in {project.lab_folder}" if there_was_one else "there is no lab to remove"
    )


def ensure_stack(session: Session) -> None:
    """Make the stack's place in the lab's backend, if there is none yet."""
    with lab_command.opened(session.project) as lab:
        lab.claim()
        (session.project.lab_folder / "state").mkdir(exist_ok=True)
    if not session.is_made():
        session.make()


def _summary(session: Session) -> report.Summary:
    section = session.config.section
    outputs = session.read("stack", "output") or {}
    if isinstance(section, Rke2Config):
        return report.of_rke2(session.project, session.stack, outputs)
    if not isinstance(section, CaasConfig):
        return report.of_usernetes(session.project, session.stack, outputs)
    with lab_command.opened(session.project):
        access = open_access(session.project, section)
    return report.of_caas(session.project, session.stack, outputs, access)


def _unchanged(session: Session) -> bool:
    history = session.read("stack", "history", "--page-size", "1")
    changes = (history or [{}])[0].get("resourceChanges") or {}
    return not {kind for kind, count in changes.items() if count} - EMPTY
