"""Which URNs a resource may have had before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine import urn as urns
from engine.goal import Alias, Goal
from engine.request import Request


def resolve(goal: Goal, request: Request, alias_of: Mapping[str, str]) -> tuple[str, ...]:
    """The URNs in the order in which they are tried.

    First those that the program names, then those that follow from the parent having had another
    one (`alias_of` maps URNs of this run to the old URN that was found for them).
    """
    found = dict.fromkeys(_resolve_one(alias, goal, request, alias_of) for alias in goal.aliases)
    found.update(dict.fromkeys(_inherited(goal, request, alias_of, tuple(found))))
    return tuple(found)


def _resolve_one(alias: Alias, goal: Goal, request: Request, alias_of: Mapping[str, str]) -> str:
    if alias.urn:
        return alias.urn
    # A parent that was found under an old URN had that one when this resource was below it.
    old_parent = alias_of.get(alias.parent, alias.parent)
    parent = "" if alias.no_parent else old_parent or goal.parent
    return urns.make(
        alias.stack or request.stack,
        alias.project or request.project.name,
        parent,
        alias.type or goal.type,
        alias.name or goal.name,
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
