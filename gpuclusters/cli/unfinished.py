"""What a killed run leaves behind, and what is done about it. Pure: facts in, faults with their repairs out.

A run that is killed leaves up to four things that the next one cannot get past by itself:

- **a lock** in a file backend (`pkg/backend/diy/lock.go` of Pulumi). It says host, user, process and time.
  It is dead only if it was taken on this computer and its process is gone. A lock of another computer, or
  one that cannot be read, may be alive, and nobody here can know.
- **providers** that do not notice for some minutes, and go on with what they were doing.
- **pending creates** in the state: Pulumi keeps each until somebody says what became of it
  (`pkg/backend/snapshot.go`). Other pending operations are dropped by the next run. What a create of this
  program had made is found by the next one: dynamic resources read, compare and act, Kubernetes objects
  are applied with one field manager, commands can be run again. So the note of it is cleared. Resources
  of other kinds, like Google's, would be made twice: somebody has to look.
- **records of Helm** (`pkg/action/{install,upgrade}.go` of Helm): a release that is `pending-…` is refused
  for ever, and so is the name of one that the state does not know. The record is removed, nothing else:
  what the release made carries Helm's marks, and the next installation takes it over
  (`pkg/action/validate.go`, `existingResourceConflict`). Nothing of it stops meanwhile. A removal that was
  cut off (`uninstalling`) is carried to its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.cli.state_locks import Lock
from gpuclusters.gpu_operator.helm_release import Revision

CREATING = "creating"
RELEASE = "kubernetes:helm.sh/v3:Release"
ROOT = "pulumi:pulumi:Stack"
SECRET_MARK = "4dabf18193072939515e22adb298388d"  # noqa: S105  (of Pulumi: says that a value is secret)

FOUND_AGAIN = ("gpu-clusters:gpu:", "kubernetes:", "command:")
"""Types whose create finds what an earlier one has made, or can be run again."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A provider's process whose engine is gone."""

    pid: int
    began: float
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a state, or of an operation that is pending in it."""

    urn: str
    type: str
    provider: str
    inputs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its logical name."""
        return self.urn.rsplit("::", 1)[-1]

    @property
    def title(self) -> str:
        """Kind and name, for a sentence."""
        return f"{self.type.rsplit(':', 1)[-1]} {self.name}"

    @property
    def release(self) -> tuple[str, str]:
        """Namespace and name of the Helm release that it is."""
        return (
            str(self.inputs.get("namespace") or "default"),
            str(self.inputs.get("name") or self.name),
        )


@dataclass(frozen=True, slots=True)
class State:
    """What a state says about what is unfinished."""

    creating: tuple[Resource, ...]
    releases: tuple[Resource, ...]
    """Those that are in the state as resources."""
    kubeconfigs: Mapping[str, str]
    """By reference of the provider, as resources have it. Secret."""
    root: str
    """URN of the stack itself; empty if it is not in the state yet."""

    @property
    def lost_releases(self) -> tuple[Resource, ...]:
        """Those whose create was cut off, and that the state has not."""
        known = {one.release for one in self.releases}
        lost = (one for one in self.creating if one.type == RELEASE)
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
        creating=tuple(
            _resource(one["resource"]) for one in pending if one.get("type") == CREATING
        ),
        releases=tuple(_resource(one) for one in known if one["type"] == RELEASE),
        kubeconfigs={key: str(value) for key, value in kubeconfigs.items() if value},
        root=next((str(one["urn"]) for one in known if f"::{ROOT}::" in str(one["urn"])), ""),
    )


def opened(value: Any) -> Any:
    """A value of a state whose secrets were asked for, without the marks around it."""
    while isinstance(value, Mapping) and SECRET_MARK in value and "plaintext" in value:
        value = json.loads(str(value["plaintext"]))
    return value


@dataclass(frozen=True, slots=True)
class Command:
    """What does the same by hand."""

    program: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveLock:
    """Let go of a lock whose run is dead."""

    file: str


@dataclass(frozen=True, slots=True)
class EndProvider:
    """End a provider whose engine is gone, and wait until it has ended."""

    orphan: Orphan


@dataclass(frozen=True, slots=True)
class ForgetRevisions:
    """Remove records of Helm, and nothing that the release made."""

    provider: str
    namespace: str
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Carry the removal of a resource to its end."""

    urn: str


@dataclass(frozen=True, slots=True)
class ClearCreates:
    """Take the notes of all creates that were cut off out of the state."""


@dataclass(frozen=True, slots=True)
class Look:
    """Nothing here can tell: somebody has to look."""


Repair = RemoveLock | EndProvider | ForgetRevisions | Remove | ClearCreates | Look


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that a killed run left."""

    found: str
    remedy: str
    """What is done about it, as in "…: its record is removed"."""
    repair: Repair
    by_hand: tuple[Command, ...]


def lock_fault(lock: Lock) -> Fault:
    """A lock whose run is dead."""
    found = f"the stack is locked by {lock.holder}, which runs no more"
    by_hand = _pulumi("cancel", "--yes")
    return Fault(found, "the lock is removed", RemoveLock(lock.file), (by_hand,))


def provider_fault(orphan: Orphan) -> Fault:
    """A provider that goes on without its engine."""
    found = f"the provider {orphan.name} of the killed run is still at work (process {orphan.pid})"
    by_hand = Command("kill", (str(orphan.pid),))
    return Fault(found, "it is told to end, and waited for", EndProvider(orphan), (by_hand,))


def create_faults(state: State) -> list[Fault]:
    """Creates that were cut off, one fault each; releases have faults of their own beside it."""
    # There is a flag for all of them only: where one has to be looked at, all wait for it.
    by_hand = (_pulumi("refresh", "--yes", "--clear-pending-creates"),)
    clears = "its note is cleared, and the next create finds what is there"
    look = "look whether it is there: if so remove it there or adopt it with `import`, then clear the note"
    twice = "was cut off, and another create would make a second one"
    return [
        Fault(f"the create of {one.title} was cut off", clears, ClearCreates(), by_hand)
        if one.type.startswith(FOUND_AGAIN)
        else Fault(f"the create of {one.title} ({one.type}) {twice}", look, Look(), by_hand)
        for one in state.creating
    ]


def release_fault(resource: Resource, known: Sequence[Revision], *, in_state: bool) -> Fault | None:
    """What stands in the way of a Helm release; None if nothing does.

    Args:
        resource: the release, of the state or of a create that was cut off.
        known: what Helm has recorded about it, oldest first.
        in_state: whether it is in the state, or only about to be.
    """
    if not known:
        return None
    namespace, name = resource.release
    called = f"Helm release {namespace}/{name}"
    last = known[-1]
    if not in_state:
        left = f"{called} was left {last.status} by a create that was cut off"
        if last.status == "deployed":
            left = f"{called} is deployed, and its create was cut off before the state had it"
        then = "the next installation takes over what it made"
        return _forgotten(resource, left, then, [r.secret for r in known])
    if last.is_pending:
        refuses = f"at revision {last.number}, and Helm refuses any other change"
        left = f"{called} was left {last.status} {refuses}"
        return _forgotten(resource, left, "the next upgrade goes on from there", [last.secret])
    if last.status == "uninstalling":
        then = "its removal is carried to its end; if the program wants it, it is installed anew"
        by_hand = _pulumi("destroy", "--yes", "--target", resource.urn)
        return Fault(f"{called} was left {last.status}", then, Remove(resource.urn), (by_hand,))
    return None


def _forgotten(resource: Resource, found: str, then: str, secrets: Sequence[str]) -> Fault:
    namespace, _ = resource.release
    record = "record is" if len(secrets) == 1 else "records are"
    remedy = f"Helm's {record} removed, nothing else; {then}"
    repair = ForgetRevisions(resource.provider, namespace, tuple(secrets))
    by_hand = Command("kubectl", ("--namespace", namespace, "delete", "secret", *secrets))
    return Fault(found, remedy, repair, (by_hand,))


def can_be_repaired(faults: Iterable[Fault]) -> bool:
    """Whether nobody has to look first."""
    return not any(isinstance(one.repair, Look) for one in faults)


def _pulumi(*arguments: str) -> Command:
    return Command("pulumi", arguments)


def _resource(document: Mapping[str, Any]) -> Resource:
    return Resource(
        str(document["urn"]),
        str(document["type"]),
        str(document.get("provider") or ""),
        {key: opened(value) for key, value in (document.get("inputs") or {}).items()},
    )
