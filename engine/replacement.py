"""Replacing a resource: in which order, and what has to be replaced with it."""

from collections.abc import Sequence

from engine import urn as urns
from engine.answers import Comparison
from engine.changes import CreateStep, ReplaceStep
from engine.deletes import DeleteStep
from engine.diff import Diff, apply_replace_on_changes
from engine.drafts import PlanError
from engine.provider import compare
from engine.session import Session
from engine.state import ResourceState
from engine.step import Step
from engine.values import UNKNOWN, Values


class Replacements:
    def __init__(self, session: Session) -> None:
        self._session = session

    def steps(
        self, old: ResourceState, new: ResourceState, diff: Diff, *, delete_first: bool
    ) -> Sequence[Step]:
        """The steps that replace `old` by `new`.

        Raises:
            PlanError: a dependent would have to go with it, and is protected.
            ProviderError: a dependent's provider does not answer.
        """
        progress = self._session.progress
        with progress.lock:
            progress.replaced.add(new.urn)
        if delete_first or old.pending_replacement:
            before: list[Step] = []
            if delete_first:
                before = self._delete_first(old)
            return [
                *before,
                _replace(old, new, diff),
                _create(old, new, diff, pend_delete=False),
            ]
        return [_create(old, new, diff, pend_delete=True), _replace(old, new, diff)]

    def refuse_protected(self, urn: str) -> None:
        """Tell the user that a resource cannot be replaced."""
        self._session.saw_error = True
        self._session.reporter.say(
            "error",
            f'unable to replace resource "{urn}"\nas it is currently marked for protection. To'
            " unprotect the resource, remove the `protect` flag from the resource in your Pulumi"
            " program and run `pulumi up`",
            urn,
        )

    def provider_is_replaced(self, old: ResourceState, new: ResourceState) -> bool:
        """Whether the resource needs a new object because its provider is another one."""
        if old.provider == new.provider:
            return False
        if not (old.provider and new.provider):
            return True  # a component becomes a resource of a provider, or the other way round
        old_urn, old_id = urns.split_reference(old.provider)
        new_urn, _ = urns.split_reference(new.provider)
        if self._session.progress.aliased.get(old_urn) == new_urn:
            return False
        before = next(
            (r for r in self._session.base.resources if (r.urn, r.id) == (old_urn, old_id)), None
        )
        after = self._session.registry.handle(new.provider).state
        return before is None or self._session.registry.needs_replacement(before, after)

    def is_triggered(self, old: ResourceState, new: ResourceState) -> bool:
        """Whether the program asks for a new object by a changed trigger."""
        trigger = new.replacement_trigger
        return trigger is not None and old.replacement_trigger not in (None, trigger)

    def _delete_first(self, old: ResourceState) -> list[Step]:
        progress = self._session.progress
        # Nobody may register while it is found out who has to go with the old one.
        with progress.lock:
            steps: list[Step] = []
            for dependent, keys in reversed(self._dependents(old)):
                if id(dependent) in progress.condemned:
                    continue
                if dependent.delete:
                    # An older object that waits to be deleted needs the old one as well.
                    steps.append(self._condemn(dependent, pend=False))
                    continue
                if dependent.protect:
                    self._refuse_dependent(dependent.urn, old.urn)
                progress.replaced_with[dependent.urn] = keys
                progress.deleted.add(dependent.urn)
                if not dependent.pending_replacement:
                    steps.append(self._condemn(dependent))
            if not old.pending_replacement:
                steps.append(self._condemn(old))
            return steps

    def _condemn(self, state: ResourceState, *, pend: bool = True) -> Step:
        progress = self._session.progress
        if pend:
            progress.deleted.add(state.urn)
        progress.condemned.add(id(state))
        return DeleteStep(state, None, replacing=True, pend_replacement=pend)

    def _refuse_dependent(self, urn: str, root: str) -> None:
        self._session.saw_error = True
        raise PlanError(
            f'unable to replace resource "{urn}" as part of replacing "{root}" as it is currently'
            " marked for protection. To unprotect the resource, remove the `protect` flag from the"
            " resource in your Pulumi program and run `pulumi up`, or use the command:\n"
            f"`pulumi state unprotect '{urn}'`",
            root,
        )

    def _dependents(self, root: ResourceState) -> list[tuple[ResourceState, tuple[str, ...]]]:
        """What has to be made anew because `root` is deleted first, with the reasons."""
        found: list[tuple[ResourceState, tuple[str, ...]]] = []
        replaced = {root.urn}
        # What is registered already cannot depend on what is being registered now.
        ignored = self._session.progress.registered
        for state in self._session.graph.dependents(root, ignored=ignored):
            if not state.custom:
                continue
            keys = self._reasons(state, replaced)
            if keys is not None:
                found.append((state, keys))
                replaced.add(state.urn)
        return found

    def _reasons(self, state: ResourceState, replaced: set[str]) -> tuple[str, ...] | None:
        """Why a dependent has to be replaced; None if it need not be."""
        if state.provider and urns.split_reference(state.provider)[0] in replaced:
            return ()
        if state.deleted_with in replaced:
            return ()
        inputs = _with_unknowns(state, replaced)
        if inputs is None:
            return None
        if state.is_provider:
            diff = self._session.registry.diff(state, state, inputs)
        else:
            known = (state.id, state.inputs, state.outputs)
            wanted = Comparison(state, *known, inputs, state.ignore_changes)
            diff = compare(self._session.provider_for(state), wanted)
        diff = apply_replace_on_changes(diff, state.replace_on_changes, init_errors=False)
        return diff.replace_keys if diff.replace else None


def _with_unknowns(state: ResourceState, replaced: set[str]) -> Values | None:
    """The inputs with unknowns for what depends on something replaced; None if nothing does."""
    touched = {
        key
        for key, dependencies in state.property_dependencies.items()
        if key in state.inputs and not replaced.isdisjoint(dependencies)
    }
    if not touched:
        return None
    return {k: UNKNOWN if k in touched else v for k, v in state.inputs.items()}


def _replace(old: ResourceState, new: ResourceState, diff: Diff) -> Step:
    return ReplaceStep(old, new, diff.replace_keys, diff.changed_keys, diff.detailed)


def _create(old: ResourceState, new: ResourceState, diff: Diff, *, pend_delete: bool) -> Step:
    return CreateStep(
        old,
        new,
        diff.replace_keys,
        diff.changed_keys,
        diff.detailed,
        replacing=True,
        pend_delete=pend_delete,
    )
