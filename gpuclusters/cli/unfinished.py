"""What a killed run leaves behind, whether it is alive, and what is done about it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import psutil
import yaml

from gpuclusters.gpu_operator.helm_release import Revision
from gpuclusters.gpu_operator.objects import SECRET
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.review.plan import HELM_RELEASE, SECRET_MARK, STACK_TYPE, Resource, resource_of

if TYPE_CHECKING:
    from gpuclusters.cli.project import Session

BACKEND_VARIABLE = "PULUMI_BACKEND_URL"
_FILES = "file://"
_ENGINES = ("pulumi", "-m engine")
CLOCK_SECONDS = 5.0
"""A process that began this long after its lock was written is another one with the same number."""


class Fate(StrEnum):
    DEAD = "dead"
    RUNS = "runs"
    ELSEWHERE = "elsewhere"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock of a file backend, as its file says; `pid` is 0 where the file says nothing."""

    file: str
    pid: int = 0
    user: str = ""
    host: str = ""
    since: datetime | None = None

    @property
    def holder(self) -> str:
        """Who took it, for a sentence."""
        when = "" if self.since is None else f" since {self.since:%Y-%m-%d %H:%M:%S %z}"
        return f"process {self.pid} of {self.user}@{self.host}{when}"


@dataclass(frozen=True, slots=True)
class Process:
    began: datetime
    is_engine: bool
    """Whether its command line could be that of an engine."""


def read_lock(file: str, text: str) -> Lock:
    """A lock from its file; one that says nothing is somebody's all the same."""
    try:
        content = json.loads(text)
        user, host = str(content["username"]), str(content["hostname"])
        since = datetime.fromisoformat(str(content["timestamp"]))
        since = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
        return Lock(file, int(content["pid"]), user, host, since)
    except (ValueError, KeyError, TypeError):
        return Lock(file)


def fate(lock: Lock, here: str, process: Process | None) -> Fate:
    """What became of the run that took it; `process` is what has its number on this computer now."""
    if lock.pid <= 0 or lock.since is None:
        return Fate.UNREADABLE
    if lock.host != here:
        return Fate.ELSEWHERE
    if process is None:
        return Fate.DEAD
    # The clock may have been set since, so that an engine is never taken for dead by its time.
    later = (process.began - lock.since).total_seconds() > CLOCK_SECONDS
    return Fate.DEAD if later and not process.is_engine else Fate.RUNS


def backend_url(project: Path, env: Mapping[str, str]) -> str:
    """Where Pulumi keeps a project's state: variable, `Pulumi.yaml`, last login; empty if nobody says."""
    if url := env.get(BACKEND_VARIABLE):
        return url
    document = yaml.safe_load((project / "Pulumi.yaml").read_text(encoding="utf-8"))
    if url := (document.get("backend") or {}).get("url"):
        return str(url)
    home = env.get("PULUMI_HOME") or str(Path(env.get("HOME") or Path.home()) / ".pulumi")
    try:
        login = json.loads((Path(home) / "credentials.json").read_text(encoding="utf-8"))
        return str(login.get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def folder_of(url: str) -> Path | None:
    """The folder of a file backend; None for others, whose locks only their service can judge."""
    if not url.startswith(_FILES):
        return None
    path = unquote(url.removeprefix(_FILES).partition("?")[0])
    return Path(path or ".").expanduser()


def locks(folder: Path, project: str, stack: str) -> Iterator[tuple[Lock, Fate]]:
    """The locks of a stack and what became of their runs; one that goes meanwhile is none."""
    here = socket.gethostname()
    for path in sorted((folder / ".pulumi/locks/organization" / project / stack).glob("*.json")):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError:
            text = ""
        lock = read_lock(str(path), text)
        yield lock, fate(lock, here, _process(lock.pid))


def _process(pid: int) -> Process | None:
    if pid <= 0:
        return None
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        began = datetime.fromtimestamp(process.create_time(), UTC)
    except psutil.NoSuchProcess:
        return None
    try:
        words = " ".join([process.name(), *process.cmdline()])
    except psutil.Error:
        # Somebody else's: what it is cannot be seen, so it may be an engine.
        return Process(began, is_engine=True)
    return Process(began, is_engine=any(engine in words for engine in _ENGINES))


CREATING = "creating"

_CLEAR = ("pulumi", "refresh", "--yes", "--clear-pending-creates")
"""There is a flag for all creates only: where one has to be looked at, all wait for it."""
_END_SECONDS = 180.0
"""For what a provider does when it is told to end, like having Helm write down that its release failed."""
FOUND_AGAIN = ("gpu-clusters:gpu:", "kubernetes:", "command:")
"""Types whose create finds what an earlier one has made, or can be run again."""


@dataclass(frozen=True, slots=True)
class State:
    creating: tuple[Resource, ...]
    releases: tuple[Resource, ...]
    kubeconfigs: Mapping[str, str]
    """By reference of the provider, as resources have it. Secret."""
    root: str
    """URN of the stack itself; empty if it is not in the state yet."""

    @property
    def lost_releases(self) -> tuple[Resource, ...]:
        """Those whose create was cut off, and that the state has not."""
        known = {one.release for one in self.releases}
        lost = (one for one in self.creating if one.type == HELM_RELEASE)
        return tuple(one for one in lost if one.release not in known)


def read_state(exported: Mapping[str, Any]) -> State:
    """The state from what `pulumi stack export --show-secrets` prints."""
    deployment = exported.get("deployment") or {}
    resources = deployment.get("resources") or ()
    known = [one for one in resources if not one.get("delete")]
    pending = deployment.get("pending_operations") or ()
    kubeconfigs = {
        f"{one['urn']}::{one.get('id')}": opened((one.get("inputs") or {}).get("kubeconfig"))
        for one in resources
        if one["type"] == "pulumi:providers:kubernetes"
    }
    return State(
        creating=_resources(one["resource"] for one in pending if one.get("type") == CREATING),
        releases=_resources(one for one in known if one["type"] == HELM_RELEASE),
        kubeconfigs={key: str(value) for key, value in kubeconfigs.items() if value},
        root=next((str(one["urn"]) for one in known if f"::{STACK_TYPE}::" in str(one["urn"])), ""),
    )


def _resources(documents: Iterable[Mapping[str, Any]]) -> tuple[Resource, ...]:
    found = (resource_of(one, str(one["urn"])) for one in documents)
    return tuple(one for one in found if one is not None)


def opened(value: Any) -> Any:
    """A value of a state whose secrets were asked for, without the marks around it."""
    while isinstance(value, Mapping) and SECRET_MARK in value and "plaintext" in value:
        value = json.loads(str(value["plaintext"]))
    return value


Act = Callable[["Session", "State | None"], object]
"""A repair. OSError or AdapterError says why it failed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that a killed run left."""

    found: str
    remedy: str
    """What is done about it, as in "…: its record is removed"."""
    by_hand: tuple[str, ...]
    """The words of a command that does the same; Pulumi's lacks the stack."""
    act: Act | None
    """None: nothing here can tell, somebody has to look."""


def _run(session: Session, verb: str, *flags: str) -> None:
    """Run a verb of the engine without a word, unless it fails."""
    words = (verb, "--stack", session.stack, "--yes", "--non-interactive", *flags)
    done = session.run(*words, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise OSError(f"`{verb}` of the engine ended with exit code {done.returncode}; see above")


def clear_creates(session: Session, state: State | None) -> None:
    """Take the notes of all creates that were cut off out of the state."""
    # Of the resources none is looked at: machines may be on their way up, and `up` looks anyway.
    only = ["--target", state.root] if state is not None and state.root else []
    _run(session, "refresh", "--clear-pending-creates", "--skip-preview", *only)


def _end(process: psutil.Process) -> None:
    """Tell it to end, and wait until it has; one that does not is killed."""
    # Another one that has its number by now is left alone by psutil.
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(_END_SECONDS)
            return
        process.kill()


def lock_fault(lock: Lock) -> Fault:
    """A lock whose run is dead."""
    found = f"the stack is locked by {lock.holder}, which runs no more"

    def unlock(*_: object) -> None:
        # And no other: `pulumi cancel` would also take one that was taken meanwhile.
        Path(lock.file).unlink(missing_ok=True)

    return Fault(found, "the lock is removed", ("pulumi", "cancel", "--yes"), unlock)


def provider_fault(process: psutil.Process, name: str) -> Fault:
    """A provider that goes on without its engine."""
    found = f"the provider {name} of the killed run is still at work (process {process.pid})"
    by_hand = ("kill", str(process.pid))
    return Fault(found, "it is told to end, and waited for", by_hand, lambda *_: _end(process))


def create_faults(state: State) -> Iterator[Fault]:
    """Creates that were cut off, one fault each; releases have faults of their own beside it."""
    clears = "its note is cleared, and the next create finds what is there"
    look = "look whether it is there: if so remove it there or adopt it with `import`, then clear the note"
    twice = "was cut off, and another create would make a second one"
    for one in state.creating:
        title = f"{one.kind} {one.name}"
        if one.type.startswith(FOUND_AGAIN):
            found = f"the create of {title} was cut off"
            yield Fault(found, clears, _CLEAR, clear_creates)
        else:
            found = f"the create of {title} ({one.type}) {twice}"
            yield Fault(found, look, _CLEAR, None)


def release_fault(resource: Resource, known: Sequence[Revision], *, in_state: bool) -> Fault | None:
    """What stands in the way of a Helm release; None if nothing does.

    `known` is what Helm has recorded, oldest first; it is not `in_state` while its create was cut off.
    """
    if not known:
        return None
    namespace, name = resource.release
    called = f"Helm release {namespace}/{name}"
    last = known[-1]
    if in_state and last.status == "uninstalling":
        then = "its removal is carried to its end; if the program wants it, it is installed anew"
        target = ("--target", resource.urn)
        by_hand = ("pulumi", "destroy", "--yes", *target)

        def remove(session: Session, _state: State | None) -> None:
            _run(session, "destroy", *target, "--skip-preview")

        return Fault(f"{called} was left {last.status}", then, by_hand, remove)
    if in_state and not last.is_pending:
        return None
    secrets: tuple[str, ...] = (last.secret,)
    if in_state:
        refuses = f"at revision {last.number}, and Helm refuses any other change"
        left = f"{called} was left {last.status} {refuses}"
        then = "the next upgrade goes on from there"
    else:
        left = f"{called} was left {last.status} by a create that was cut off"
        if last.status == "deployed":
            left = f"{called} is deployed, and its create was cut off before the state had it"
        then = "the next installation takes over what it made"
        secrets = tuple(one.secret for one in known)
    record = "record is" if len(secrets) == 1 else "records are"
    remedy = f"Helm's {record} removed, nothing else; {then}"
    words = ("kubectl", "--namespace", namespace, "delete", "secret", *secrets)

    def forget(_session: Session, state: State | None) -> None:
        kubeconfig = state.kubeconfigs[resource.provider] if state is not None else ""
        for secret in secrets:
            KubernetesObjects(kubeconfig).delete(SECRET, secret, namespace)

    return Fault(left, remedy, words, forget)
