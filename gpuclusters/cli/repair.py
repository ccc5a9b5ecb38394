"""What a killed `up` left: found before the next one, named, and repaired with Pulumi's own means.

In the lab it is repaired at once. Elsewhere somebody is asked, or has said `--repair`; without either the
command ends and says what to type.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import psutil
import typer
from rich.console import Console

from gpuclusters.cli import unfinished
from gpuclusters.cli.errors import RunError
from gpuclusters.cli.unfinished import BACKEND_VARIABLE, Fate, Fault, State
from gpuclusters.core.errors import AdapterError
from gpuclusters.gpu_operator.helm_release import revisions
from gpuclusters.kube.objects import KubernetesObjects

if TYPE_CHECKING:
    from gpuclusters.cli.project import Session

OPTION = "--repair"
_MODULES = ("gpuclusters.providers.", "engine.stand_ins.")
_PLUGIN = "pulumi-resource-"
_LOOK_SECONDS = 0.5
"""Between two looks: an engine that ends in good order ends its providers within that."""


def repair(session: Session, console: Console, *, asked_for: bool) -> None:
    """Find what a killed run left, say it, and repair it if that is wanted."""
    # First the locks: nothing else of the state can be changed while one is there.
    locks = _dead_locks(session)
    if locks:
        # Before the locks: with them a run that is killed here is found again.
        gone = orphans(session.project.folder, session.env)
        locks = [*(unfinished.provider_fault(one, name) for one, name in gone.items()), *locks]
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
        _print(console, f"found: {fault.found}: {fault.remedy}")
    if any(fault.act is None for fault in faults):
        raise _by_hand(session, faults, "somebody has to look first")
    if not (allowed or session.in_lab or _agreed()):
        raise _by_hand(session, faults, f"run `up` again with {OPTION} to have that done")
    # Records first, so that a run that is killed here finds the faults again.
    acts = dict.fromkeys(fault.act for fault in faults if fault.act)
    for act in sorted(acts, key=lambda act: act is unfinished.clear_creates):
        try:
            act(session, state)
        except (AdapterError, OSError) as error:
            why = f"the repair failed: {error}"
            raise _by_hand(session, faults, why, "command.not-repaired") from error


def _print(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)


def _agreed() -> bool:
    watched = sys.stdin.isatty() and sys.stdout.isatty()
    return watched and typer.confirm("repair that now?", default=False)


def _dead_locks(session: Session) -> list[Fault]:
    """Locks of runs that are dead. Others end the command."""
    folder = unfinished.folder_of(unfinished.backend_url(session.project.folder, session.env))
    if folder is None:
        return []
    faults = []
    for lock, fate in unfinished.locks(folder, session.project.name, session.stack):
        if fate is Fate.DEAD:
            faults.append(unfinished.lock_fault(lock))
            continue
        ends = "wait for it. To end it: Ctrl-C where it runs"
        said = f"the stack is locked by {lock.holder}, which runs; {ends}"
        if fate is not Fate.RUNS:
            nobody = f"a file that does not say by whom ({lock.file})"
            elsewhere = f"{lock.holder}, on another computer"
            whose = elsewhere if fate is Fate.ELSEWHERE else nobody
            command = command_line(session, ("pulumi", "cancel", "--yes"))
            said = (
                f"the stack is locked by {whose}; nobody here can know whether that still runs. "
                f"If it does not: `{command}`"
            )
        raise RunError(said, "command.stack-locked")
    return faults


def _state(session: Session) -> State | None:
    """The state; None if the engine cannot read it, of which its own `up` will tell."""
    words = ("stack", "export", "--show-secrets", "--stack", session.stack)
    exported, _ = session.ask(*words)
    return None if exported is None else unfinished.read_state(exported)


def _faults(state: State, console: Console) -> list[Fault]:
    found = [*unfinished.create_faults(state)]
    for resource in (*state.releases, *state.lost_releases):
        in_state = resource in state.releases
        kubeconfig = state.kubeconfigs.get(resource.provider)
        if kubeconfig is None:
            continue
        namespace, name = resource.release
        try:
            known = revisions(KubernetesObjects(kubeconfig), namespace, name)
        except AdapterError as error:
            # Where the cluster is away `up` either brings it back, or says so with more to go on.
            if not in_state:
                unknown = f"what became of Helm release {namespace}/{name} is not known"
                _print(console, f"note: {unknown}: {error}")
            continue
        fault = unfinished.release_fault(resource, known, in_state=in_state)
        if fault is not None:
            found.append(fault)
    return found


def _by_hand(
    session: Session, faults: Sequence[Fault], why: str, code: str = "command.unfinished-run"
) -> RunError:
    commands = (command_line(session, fault.by_hand) for fault in faults)
    lines = "".join(f"\n  {line}" for line in dict.fromkeys(commands))
    left = f"a run that was killed left the stack {session.stack!r} unfinished"
    return RunError(f"{left}; {why}. By hand:{lines}", code)


def command_line(session: Session, words: Sequence[str]) -> str:
    """A command as it can be typed: with the engine that is here, and the backend of this stack."""
    if words[0] != "pulumi":
        return shlex.join(words)
    # Without its backend Pulumi would look for a stack of the lab where its user is logged in.
    names = (BACKEND_VARIABLE, "PULUMI_CONFIG_PASSPHRASE") if session.in_lab else ()
    known = {name: session.env[name] for name in names if name in session.env}
    variables = (f"{name}={shlex.quote(value)}" for name, value in known.items())
    program, *rest = session.engine.command
    # By its name where that finds it.
    found = shutil.which("pulumi", path=session.env.get("PATH"))
    engine = "pulumi" if program == found else shlex.join([program, *rest])
    return " ".join([*variables, engine, shlex.join([*words[1:], "--stack", session.stack])])


def orphans(project: Path, env: Mapping[str, str]) -> dict[psutil.Process, str]:
    """Providers of this project and its backend whose engine is gone: what each is called, by its process.

    Those of others are left alone. An engine gives each provider its address as the last argument, at which
    nobody answers any more. Ours end with it; plugins of Pulumi ask for it every five minutes
    (`sdk/go/pulumi/provider/main.go`).
    """
    found = dict(_look(project, env))
    if found:
        time.sleep(_LOOK_SECONDS)
    return {one: name for one, name in _look(project, env) if one in found}


def _look(project: Path, env: Mapping[str, str]) -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = process.cmdline()
            name = _provider(words)
            if (
                name
                and Path(process.cwd()) == project.resolve()
                and process.environ().get(BACKEND_VARIABLE) == env.get(BACKEND_VARIABLE)
                and _nobody_answers(words[-1])
            ):
                yield process, name


def _provider(words: Sequence[str]) -> str:
    """What a command line calls the provider that it is; empty if it is none."""
    for word in words[:-1]:
        name = PurePath(word).name
        if name.startswith(_PLUGIN) or word.startswith(_MODULES):
            return name
    return ""


def _nobody_answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return False
    try:
        socket.create_connection((host, int(port)), 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
