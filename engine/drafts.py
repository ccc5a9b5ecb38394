"""Registrations on their way to a plan: which URN, which old state, which new one."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from engine import urn as urns
from engine.diff import ignore_changes
from engine.goal import Goal
from engine.protocol import alias_pb2
from engine.request import Request
from engine.session import Session
from engine.state import STACK_TYPE, ResourceState
from engine.values import Values

_WRITTEN_DOWN = {field.name for field in dataclasses.fields(Goal)}.intersection(
    field.name for field in dataclasses.fields(ResourceState) if field.name != "aliases"
)
"""What the state says as the program does."""


def resolve(goal: Goal, request: Request, alias_of: Mapping[str, str]) -> tuple[str, ...]:
    """The URNs in the order in which they are tried.

    First those that the program names, then those that follow from the parent having had another
    one (`alias_of` maps URNs of this run to the old URN that was found for them).
    """
    found = dict.fromkeys(_resolve_one(alias, goal, request, alias_of) for alias in goal.aliases)
    found.update(dict.fromkeys(_inherited(goal, request, alias_of, tuple(found))))
    return tuple(found)


def _resolve_one(
    alias: alias_pb2.Alias, goal: Goal, request: Request, alias_of: Mapping[str, str]
) -> str:
    if alias.urn:
        return alias.urn
    spec = alias.spec
    # A parent that was found under an old URN had that one when this resource was below it.
    old_parent = alias_of.get(spec.parentUrn, spec.parentUrn)
    parent = "" if spec.noParent else old_parent or goal.parent
    return urns.make(
        spec.stack or request.stack,
        spec.project or request.project.name,
        parent,
        spec.type or goal.type,
        spec.name or goal.name,
    )


def _inherited(
    goal: Goal, request: Request, alias_of: Mapping[str, str], own: tuple[str, ...]
) -> Iterator[str]:
    old_parent = alias_of.get(goal.parent)
    if old_parent is None:
        return
    yield _below(old_parent, goal.type, goal.name, goal.parent, request)
    for alias in own:
        yield _below(old_parent, urns.type_of(alias), urns.name_of(alias), goal.parent, request)


def _below(old_parent: str, type_: str, name: str, parent: str, request: Request) -> str:
    # Children are often called after their parent; such a name changed with the parent's.
    prefix = urns.name_of(parent)
    if name.startswith(prefix):
        name = urns.name_of(old_parent) + name.removeprefix(prefix)
    return urns.make(request.stack, request.project.name, old_parent, type_, name)


class PlanError(Exception):
    """A registration that cannot be carried out; the message is for the user."""

    def __init__(self, message: str, urn: str = "") -> None:
        super().__init__(message)
        self.urn = urn


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """A registration on its way to a plan: its goal, the old state if any, the new one."""

    goal: Goal
    old: ResourceState | None
    new: ResourceState
    inputs: Values
    """The program's inputs, with ignored changes put back."""


class Drafts:
    """Begins registrations. Calls of several threads do not disturb each other."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, goal: Goal) -> Draft:
        """Claim the URN, find the old state, begin the new one.

        Raises:
            PlanError: the URN is taken, or options contradict each other.
        """
        request, progress = self._session.request, self._session.progress
        parent = self._parent(goal.parent, goal)
        urn = urns.make(request.stack, request.project.name, parent, goal.type, goal.name)
        if parent != goal.parent:
            goal = dataclasses.replace(goal, parent=parent)
        with progress.lock:
            if parent and parent not in progress.registered:
                raise PlanError(f"could not find parent resource {parent}", urn)
            candidates = resolve(goal, request, progress.alias_of)
            self.claim(urn)
            old, alias = self._find_old(urn, candidates)
            new = self._new_state(goal, urn, alias)
            if old is not None:
                progress.kept.add(old.urn)
                new.created, new.modified = old.created, old.modified
            progress.news[urn] = new
        inputs = goal.inputs
        if old is not None and goal.ignore_changes:
            inputs = ignore_changes(inputs, old.inputs, goal.ignore_changes)
        new.inputs = inputs
        return Draft(goal, old, new, inputs)

    def claim(self, urn: str) -> None:
        """Make sure that a URN is registered only once; the caller holds the lock.

        Raises:
            PlanError: it is taken.
        """
        progress = self._session.progress
        if urn in progress.registered and urn not in progress.early:
            raise PlanError(f"Duplicate resource URN '{urn}'; try giving it a unique name", urn)
        if urn in progress.aliased:
            raise PlanError(
                f"Duplicate resource URN '{urn}' conflicting with alias on resource with URN"
                f" '{progress.aliased[urn]}'",
                urn,
            )
        progress.registered.add(urn)

    def _parent(self, parent: str, goal: Goal) -> str:
        if parent or goal.type == STACK_TYPE or goal.is_provider:
            return parent
        root = self._session.stack_urn
        return root if root in self._session.progress.registered else ""

    def _find_old(self, urn: str, candidates: Sequence[str]) -> tuple[ResourceState | None, str]:
        progress, olds = self._session.progress, self._session.olds
        if urn in olds:
            return olds[urn], ""
        for alias in candidates:
            if alias not in olds:
                continue
            if alias in progress.registered:
                raise PlanError(
                    f"Duplicate resource alias '{alias}' applied to resource with URN '{urn}'"
                    f" conflicting with resource with URN '{alias}'",
                    urn,
                )
            if alias in progress.aliased:
                raise PlanError(
                    f"Duplicate resource alias '{alias}' applied to resource with URN '{urn}'"
                    f" conflicting with resource with URN '{progress.aliased[alias]}'",
                    urn,
                )
            progress.aliased[alias] = urn
            progress.alias_of[urn] = alias
            return olds[alias], alias
        return None, ""

    def _new_state(self, goal: Goal, urn: str, alias: str) -> ResourceState:
        parent = self._session.progress.news.get(goal.parent)
        protect, retain = goal.protect, goal.retain_on_delete
        deleted_with = goal.deleted_with
        if parent is not None and not urns.is_stack(parent.urn):
            protect = parent.protect if protect is None else protect
            retain = parent.retain_on_delete if retain is None else retain
            deleted_with = deleted_with or parent.deleted_with
        new = ResourceState(urn, goal.type, goal.custom, aliases=(alias,) if alias else ())
        for name in _WRITTEN_DOWN:
            setattr(new, name, getattr(goal, name))
        new.protect, new.retain_on_delete = bool(protect), bool(retain)
        new.deleted_with = deleted_with
        return new
