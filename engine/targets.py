"""Which resources a run is limited to."""

import re
from collections.abc import Collection, Iterable, Sequence

from engine import urn as urns
from engine.changes import SameStep, SkippedCreateStep
from engine.drafts import PlanError
from engine.graph import needs
from engine.keeper import Keeper
from engine.request import Request
from engine.session import Session
from engine.state import ResourceState
from engine.step import Step


class Targets:
    """`--target`, `--exclude`, `--replace`: URNs, with `*` (no further than `::`) and `**`.

    With `--target-dependents` what needs a target is meant too. A program registers what is needed
    first, so one look at each is enough.
    """

    def __init__(self, request: Request) -> None:
        self._targets = _patterns(request.targets)
        self._excludes = _patterns(request.excludes)
        self._replace = _patterns(request.replace)
        self._named = (*request.targets, *request.excludes, *request.replace)
        self._with_dependents = request.target_dependents
        self._meant: set[str] = set()

    @property
    def limited(self) -> bool:
        return bool(self._targets or self._excludes)

    def missing(self, known: Collection[str]) -> list[str]:
        """URNs that were asked for, but are of no resource; wildcards may match nothing."""
        return [urn for urn in self._named if "*" not in urn and urn not in known]

    def includes(self, state: ResourceState) -> bool:
        """Whether the run is about this resource. Providers and the stack always are."""
        named = self.names(state)
        return named or urns.is_provider(state.urn) or urns.is_stack(state.urn)

    def names(self, state: ResourceState) -> bool:
        """Whether the resource itself is meant, whatever it is."""
        if not self.limited:
            return True
        meant = self.lists(state.urn) or (
            self._with_dependents and not self._meant.isdisjoint(needs(state))
        )
        if meant:
            self._meant.add(state.urn)
        return meant if self._targets else not meant

    def lists(self, urn: str) -> bool:
        """Whether the URN is among those that the user gave: as a target, or to be excluded."""
        return _matches(self._targets or self._excludes, urn)

    def is_to_be_replaced(self, urn: str) -> bool:
        return _matches(self._replace, urn)


def _patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(_translate(text)) for text in texts)


def _translate(text: str) -> str:
    if "*" not in text:
        return re.escape(text) + r"\Z"
    parts = re.split(r"(\*\*|\*)", text)
    glob = {"**": ".*", "*": r"[^:$]*"}
    return "".join(glob.get(part, re.escape(part)) for part in parts) + r"\Z"


def _matches(patterns: Sequence[re.Pattern[str]], urn: str) -> bool:
    return any(p.match(urn) for p in patterns)


class KeptStep(SameStep):
    """Says that a resource is as it was; that is written down already."""

    def commit(self, keeper: Keeper, *, ok: bool) -> None:
        """Nothing is left to be recorded."""


class Untargeted:
    """Keeps resources that are no targets, and sees that no target needs what is not made."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def skip(self, new: ResourceState) -> Sequence[Step]:
        """A new resource that is not made in this run."""
        progress = self._session.progress
        with progress.lock:
            progress.skipped_creates.add(new.urn)
        return [SkippedCreateStep(None, new)]

    def keep(self, old: ResourceState, urn: str) -> Sequence[Step]:
        """Leave a resource entirely as it was, whatever the program says of it now.

        What it needs comes first: the program may have dropped that, but it stays as well, and
        has to stand before it in the state.

        Raises:
            PlanError: its provider, or something it needs, is no longer there.
        """
        progress = self._session.progress
        with progress.lock:
            self._require_provider(old, urn)
            return [*self._needed(old, urn), self._same(old, urn)]

    def kept_early(self, old: ResourceState, urn: str, *, targeted: bool) -> Sequence[Step]:
        """The steps for what stands in the state already, as something else needs it; or none.

        Raises:
            PlanError: it is a target, and should not stay as it was.
        """
        progress = self._session.progress
        with progress.lock:
            kept = progress.early.pop(old.urn, None)
            if kept is None:
                return ()
            progress.news[urn] = kept
        if targeted:
            raise PlanError(
                f"'{urn}' is a target, but something that is none and needed it before was"
                " registered first, and stays as it was; make both a target",
                urn,
            )
        return [KeptStep(old, kept)]

    def check(self, steps: Iterable[Step]) -> bool:
        """Tell the user of every step that needs something which is not made; whether all is well."""
        progress, good = self._session.progress, True
        if not progress.skipped_creates:
            return True
        for step in steps:
            if step.new is None or isinstance(step, SkippedCreateStep):
                continue
            with progress.lock:
                missing = sorted(needs(step.new) & progress.skipped_creates)
                # Each is told once: a plan goes on.
                progress.skipped_creates.difference_update(missing)
            for urn in missing:
                good = False
                self._session.saw_error = True
                self._session.reporter.say(
                    "error",
                    f"Resource '{step.new.urn}' depends on '{urn}' which was not specified in"
                    " --target list.",
                    step.new.urn,
                )
        return good

    # -- below; the caller holds the lock ------------------------------------------------

    def _same(self, old: ResourceState, urn: str) -> Step:
        progress = self._session.progress
        kept = old.copy()
        progress.registered.add(old.urn)
        progress.kept.add(old.urn)
        progress.news[old.urn] = progress.news[urn] = kept
        return SameStep(old, kept)

    def _needed(self, old: ResourceState, user: str) -> list[Step]:
        progress = self._session.progress
        provider = urns.split_reference(old.provider)[0]
        steps: list[Step] = []
        for urn in sorted(needs(old) - {provider}):
            if urn in progress.registered or urn in progress.aliased:
                continue
            state = self._session.olds.get(urn)
            if state is None:
                raise PlanError(f"'{urn}', which the untargeted '{user}' needs, has no state", user)
            self._require_provider(state, user)
            steps += self._needed(state, user)
            if urn not in progress.registered:
                steps.append(self._same(state, urn))
                progress.early[urn] = progress.news[urn]
        return steps

    def _require_provider(self, old: ResourceState, user: str) -> None:
        if not old.provider:
            return
        urn, id_ = urns.split_reference(old.provider)
        urn = self._session.progress.aliased.get(urn, urn)
        provider = self._session.progress.news.get(urn)
        if provider is None or provider.id != id_:
            raise PlanError(
                f"provider {old.provider} for resource {user} has not been registered yet, this is"
                " due to a change of providers mixed with --target. Change your program back to the"
                " original providers",
                user,
            )
