"""What a killed `up` left: found before the next one, named, and repaired with Pulumi's own means.

In the lab it is repaired at once. Elsewhere somebody is asked, or has said `--repair`; without either the
command ends and says what to type.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from gpuclusters.cli import orphans, state_locks, unfinished
from gpuclusters.cli.errors import RunError
from gpuclusters.cli.unfinished import (
    ClearCreates,
    Command,
    EndProvider,
    Fate,
    Fault,
    ForgetRevisions,
    Look,
    Remove,
    RemoveLock,
    State,
)
from gpuclusters.core.errors import AdapterError
from gpuclusters.gpu_operator.helm_records import HelmRecords

if TYPE_CHECKING:
    from gpuclusters.cli.project import Session

OPTION = "--repair"


def repair(session: Session, console: Console, *, asked_for: bool) -> None:
    """Find what a killed run left, say it, and repair it if that is wanted."""
    # First the locks: nothing else of the state can be changed while one is there.
    locks = _dead_locks(session)
    if locks:
        # Before the locks: with them a run that is killed here is found again.
        gone = orphans.orphans(session.project.folder, session.env)
        locks = [*map(unfinished.provider_fault, gone), *locks]
    _mend(session, console, locks, allowed=asked_for)
    state = _state(session)
    if state is not None:
        _mend(session, console, _faults(state, console), allowed=asked_for, state=state)


def _mend(
    session: Session,
    console: Console,
    faults: Sequence[Fault],
    *,
    allowed: bool,
    state: State | None = None,
) -> None:
    if not faults:
        return
    for fault in faults:
        console.print(
            f"found: {fault.found}: {fault.remedy}", soft_wrap=True, markup=False, highlight=False
        )
    if not unfinished.can_be_repaired(faults):
        raise RunError(
            _by_hand(session, faults, "somebody has to look first"), "command.unfinished-run"
        )
    if not (allowed or session.in_lab or _agreed()):
        raise RunError(
            _by_hand(session, faults, f"run `up` again with {OPTION} to have that done"),
            "command.unfinished-run",
        )
    for act in _acts(session, faults, state):
        try:
            act()
        except (AdapterError, OSError) as error:
            raise RunError(
                _by_hand(session, faults, f"the repair failed: {error}"), "command.not-repaired"
            ) from error


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm("repair that now?", default=False)


def _dead_locks(session: Session) -> list[Fault]:
    """Locks of runs that are dead. Others end the command."""
    folder = state_locks.folder_of(state_locks.backend_url(session.project.folder, session.env))
    if folder is None:
        return []
    faults = []
    for lock, fate in state_locks.locks(folder, session.project.name, session.stack):
        if fate is Fate.DEAD:
            faults.append(unfinished.lock_fault(lock))
            continue
        command = command_line(session, Command("pulumi", ("cancel", "--yes")))
        if fate is Fate.RUNS:
            raise RunError(
                f"the stack is locked by {lock.holder}, which runs; wait for it. To end it: Ctrl-C "
                "where it runs",
                "command.stack-locked",
            )
        whose = (
            f"{lock.holder}, on another computer"
            if fate is Fate.ELSEWHERE
            else f"a file that does not say by whom ({lock.file})"
        )
        raise RunError(
            f"the stack is locked by {whose}; nobody here can know whether that still runs. "
            f"If it does not: `{command}`",
            "command.stack-locked",
        )
    return faults


def _state(session: Session) -> State | None:
    """The state; None if the engine cannot read it, of which its own `up` will tell."""
    words = ("stack", "export", "--show-secrets", "--stack", session.stack)
    exported, _ = session.ask(*words)
    return None if exported is None else unfinished.read_state(exported)


def _faults(state: State, console: Console) -> list[Fault]:
    found = unfinished.create_faults(state)
    for resource, in_state in (
        *((one, True) for one in state.releases),
        *((one, False) for one in state.lost_releases),
    ):
        kubeconfig = state.kubeconfigs.get(resource.provider)
        if kubeconfig is None:
            continue
        namespace, name = resource.release
        try:
            known = HelmRecords(kubeconfig).of(namespace, name)
        except AdapterError as error:
            # Where the cluster is away `up` either brings it back, or says so with more to go on.
            if not in_state:
                console.print(
                    f"note: what became of Helm release {namespace}/{name} is not known: {error}",
                    soft_wrap=True, markup=False, highlight=False,
                )  # fmt: skip
            continue
        fault = unfinished.release_fault(resource, known, in_state=in_state)
        if fault is not None:
            found.append(fault)
    return found


def _acts(
    session: Session, faults: Sequence[Fault], state: State | None
) -> list[Callable[[], None]]:
    """What is done, in order: records first, so that a run that is killed here finds the faults again."""
    acts: list[Callable[[], None]] = []
    clears = False
    for fault in faults:
        match fault.repair:
            case EndProvider(orphan):
                acts.append(partial(orphans.end, orphan))
            case RemoveLock(file):
                acts.append(partial(state_locks.remove, file))
            case ForgetRevisions(provider, namespace, secrets):
                records = HelmRecords(state.kubeconfigs[provider] if state is not None else "")
                acts.append(partial(records.forget, namespace, secrets))
            case Remove(urn):
                acts.append(partial(_run, session, "destroy", "--target", urn, "--skip-preview"))
            case ClearCreates():
                clears = True
            case Look():
                pass
    if clears:
        # Of the resources none is looked at: machines may be on their way up, and `up` looks anyway.
        only = ["--target", state.root] if state is not None and state.root else []
        clear = ("refresh", "--clear-pending-creates", "--skip-preview", *only)
        acts.append(partial(_run, session, *clear))
    return acts


def _run(session: Session, verb: str, *flags: str) -> None:
    """Run a verb of the engine without a word, unless it fails."""
    words = (verb, "--stack", session.stack, "--yes", "--non-interactive", *flags)
    done = session.run(*words, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise OSError(f"`{verb}` of the engine ended with exit code {done.returncode}; see above")


def _by_hand(session: Session, faults: Sequence[Fault], why: str) -> str:
    commands = dict.fromkeys(
        command_line(session, command) for fault in faults for command in fault.by_hand
    )
    lines = "".join(f"\n  {line}" for line in commands)
    return (
        f"a run that was killed left the stack {session.stack!r} unfinished; {why}. By hand:{lines}"
    )


def command_line(session: Session, command: Command) -> str:
    """A command as it can be typed: with the engine that is here, and the backend of this stack."""
    if command.program != "pulumi":
        return shlex.join([command.program, *command.arguments])
    variables = {}
    if session.in_lab:
        # Without it Pulumi would look for the stack where its user is logged in.
        for name in (state_locks.BACKEND_VARIABLE, "PULUMI_CONFIG_PASSPHRASE"):
            if name in session.env:
                variables[name] = session.env[name]
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    words.append(_program(session))
    return " ".join([*words, shlex.join([*command.arguments, "--stack", session.stack])])


def _program(session: Session) -> str:
    """The engine as it is typed: by its name where that finds it."""
    program, *rest = session.engine.command
    found = shutil.which("pulumi", path=session.env.get("PATH"))
    return "pulumi" if program == found else shlex.join([program, *rest])
