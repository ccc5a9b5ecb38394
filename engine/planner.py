"""Decides what to do with a resource that the program registers."""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence

from engine.answers import SEED_BYTES, Comparison, Failure
from engine.changes import CreateStep, ReplaceStep, SameStep, UpdateStep
from engine.diff import (
    NO_CHANGES,
    Changes,
    Diff,
    apply_replace_on_changes,
)
from engine.drafts import Draft, Drafts
from engine.goal import Goal
from engine.provider import compare
from engine.replacement import Replacements
from engine.session import Session
from engine.state import ResourceState
from engine.step import Step
from engine.targets import Targets, Untargeted
from engine.values import Reference, Secret, Unknown, Value, without_unknowns


def in_go(value: Value) -> str:
    """A property value as Pulumi's messages show it: `{text}`, `map[key:{text}]`.

    Secrets are not shown, which Pulumi forgets here.
    """
    if isinstance(value, Secret):
        return "{[secret]}"
    return f"{{{_inner(value)}}}"


def _inner(value: Value) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{in_go(value[k])}" for k in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(in_go(v) for v in value) + "]"
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, Reference):
        return value.urn
    return str(value)


def refusals(state: ResourceState, failures: Iterable[Failure]) -> Iterator[str]:
    """What the user is told about inputs that the provider's check refuses."""
    told = f"{state.type} resource '{state.name}'"
    for failure in failures:
        if failure.property:
            value = in_go(state.inputs.get(failure.property))
            yield (
                f"{told}: property {failure.property} value {value} has a problem: {failure.reason}"
            )
        else:
            yield f"{told} has a problem: {failure.reason}"


class RefusedError(Exception):
    """Like `PlanError`, but the user has been told already."""


class Planner:
    """Turns registrations into steps. Calls of several threads do not disturb each other."""

    def __init__(self, session: Session, drafts: Drafts, targets: Targets) -> None:
        self._session = session
        self._targets = targets
        self._replacements = Replacements(session)
        self._untargeted = Untargeted(session)
        self._drafts = drafts

    # -- resources of the program --------------------------------------------------------

    def plan(self, draft: Draft) -> Sequence[Step]:
        """The steps for a registration.

        Raises:
            PlanError: it cannot be carried out.
            RefusedError: its inputs do not pass the provider's check, it is protected, or it needs
                something that no target asks for.
            ProviderError: the provider does not answer.
        """
        steps = self._plan(draft)
        if not self._untargeted.check(steps) and not self._session.preview:
            raise RefusedError
        return steps

    def _plan(self, draft: Draft) -> Sequence[Step]:
        goal, old, new = draft.goal, draft.old, draft.new
        if goal.custom and not goal.is_provider:
            self._session.ensure_provider(new.provider)
        with self._session.progress.lock:
            recreating = old is not None and old.urn in self._session.progress.deleted
        targeted = self._targets.includes(new)
        if old is not None and (
            steps := self._untargeted.kept_early(old, new.urn, targeted=targeted)
        ):
            return steps
        if goal.custom and targeted:
            fresh = recreating or old is None or self._targets.is_to_be_replaced(new.urn)
            self._check(draft, fresh=fresh)
        if old is None:
            return [CreateStep(None, new)] if targeted else self._untargeted.skip(new)
        if recreating:
            if not targeted:
                new.inputs = old.inputs
            return self._recreate(old, new)
        if not targeted:
            return self._untargeted.keep(old, new.urn)
        return self._plan_change(draft, old)

    # -- below ---------------------------------------------------------------------------

    def _check(self, draft: Draft, *, fresh: bool) -> None:
        """Have the provider check the inputs; without the old ones where they no longer count."""
        goal, old, new = draft.goal, draft.old, draft.new
        olds = {} if fresh or old is None else old.inputs
        news = goal.inputs if fresh else draft.inputs
        if not self._session.preview:
            # Only what depends on something that failed has unknowns now; it will not be made.
            news = without_unknowns(news)
        if goal.is_provider:
            checked = self._session.registry.check(new, olds, news)
        else:
            provider = self._session.registry.get(new.provider)
            seed = os.urandom(SEED_BYTES)
            checked = provider.check(new, olds, news, seed=seed)
        new.inputs = checked.inputs
        if checked.failures:
            self._refuse(new, checked.failures)

    def _refuse(self, new: ResourceState, failures: Sequence[Failure]) -> None:
        for text in refusals(new, failures):
            self._session.reporter.say("error", text, new.urn)
        raise RefusedError

    def _recreate(self, old: ResourceState, new: ResourceState) -> Sequence[Step]:
        keys = self._session.progress.replaced_with.get(old.urn, ())
        return [ReplaceStep(old, new), CreateStep(old, new, keys=keys, replacing=True)]

    def _plan_change(self, draft: Draft, old: ResourceState) -> Sequence[Step]:
        goal, new = draft.goal, draft.new
        diff = self._diff(draft, old)
        broken = bool(old.init_errors)
        diff = apply_replace_on_changes(diff, goal.replace_on_changes, init_errors=broken)
        if diff.changes is Changes.SOME or old.pending_replacement:
            if diff.replace or old.pending_replacement:
                return self._replace(draft, old, diff)
            return [_update(old, new, goal, diff)]
        if broken:
            return [_update(old, new, goal, dataclasses.replace(diff, changed_keys=()))]
        return [SameStep(old, new)]

    def _replace(self, draft: Draft, old: ResourceState, diff: Diff) -> Sequence[Step]:
        goal, new = draft.goal, draft.new
        if new.protect and old.protect:
            self._replacements.refuse_protected(new.urn)
            if not self._session.preview:
                raise RefusedError
        if goal.custom and not self._targets.is_to_be_replaced(new.urn):
            # Defaults were carried over from the old inputs; a new object gets its own.
            self._check(draft, fresh=True)
        first = diff.delete_before_replace
        if goal.delete_before_replace is not None:
            first = goal.delete_before_replace
        return self._replacements.steps(old, new, diff, delete_first=first)

    def _diff(self, draft: Draft, old: ResourceState) -> Diff:
        new, goal = draft.new, draft.goal
        if self._targets.is_to_be_replaced(new.urn):
            return Diff(Changes.SOME, replace_keys=("id",))
        if goal.is_provider:
            return self._session.registry.diff(new, old, new.inputs)
        if self._replacements.provider_is_replaced(old, new):
            return Diff(Changes.SOME, replace_keys=("provider",))
        if not goal.custom:
            same = old.inputs == new.inputs
            return NO_CHANGES if same else Diff(Changes.SOME)
        if self._replacements.is_triggered(old, new):
            return Diff(Changes.SOME, forced=True)
        known = (old.id, old.inputs, old.outputs)
        wanted = Comparison(new, *known, new.inputs, goal.ignore_changes)
        return compare(self._session.registry.get(new.provider), wanted)


def _update(old: ResourceState, new: ResourceState, goal: Goal, diff: Diff) -> Step:
    return UpdateStep(
        old,
        new,
        diffs=diff.changed_keys,
        detailed=diff.detailed,
        ignored=goal.ignore_changes,
    )
