"""Who depends on whom in a state."""

from collections.abc import Container, Iterable, Sequence

from engine import urn as urns
from engine.state import ResourceState


def needs(state: ResourceState, *, parents: bool = True) -> set[str]:
    """The URNs that a resource cannot be without."""
    found = set(state.dependencies)
    for dependencies in state.property_dependencies.values():
        found.update(dependencies)
    if state.deleted_with:
        found.add(state.deleted_with)
    if state.provider:
        found.add(urns.split_reference(state.provider)[0])
    if parents and state.parent:
        found.add(state.parent)
    return found


class Graph:
    """The resources of a state, in dependency order."""

    def __init__(self, resources: Sequence[ResourceState]) -> None:
        self._resources = tuple(resources)

    def dependents(
        self, *roots: ResourceState, ignored: Container[str] = (), children: bool = False
    ) -> list[ResourceState]:
        """All that depends on one of `roots`, directly or not, in the order of the state.

        URNs in `ignored` are not looked at. Children count as dependents if asked for.
        """
        found: list[ResourceState] = []
        reached: set[str] = set()
        starts = {id(root) for root in roots}
        for state in self._resources:
            if id(state) in starts:
                reached.add(state.urn)
            elif (
                reached
                and state.urn not in ignored
                and not reached.isdisjoint(needs(state, parents=children))
            ):
                found.append(state)
                reached.add(state.urn)
        return found

    def dependencies(self, roots: Iterable[ResourceState]) -> set[int]:
        """The identities of all that the given resources need, directly or not."""
        wanted = {state.urn: None for state in roots}
        found: set[int] = set()
        starts = {id(state) for state in roots}
        for state in reversed(self._resources):
            if id(state) in starts or state.urn in wanted:
                if id(state) not in starts:
                    found.add(id(state))
                wanted.update(dict.fromkeys(needs(state)))
        return found


def layers(states: Sequence[ResourceState]) -> list[list[ResourceState]]:
    """Groups of resources that can be deleted at the same time, first group first.

    Nobody is in a group before those that need it. Within a group the order is that of the
    state, backwards.
    """
    depths: dict[str, int] = {}
    groups: list[list[ResourceState]] = []
    # Who needs something stands behind it, so that backwards all users are known before.
    for state in reversed(states):
        level = depths.get(state.urn, 0)
        for urn in needs(state):
            depths[urn] = max(depths.get(urn, 0), level + 1)
        groups.extend([] for _ in range(level + 1 - len(groups)))
        groups[level].append(state)
    return groups
