"""What a plan takes down: tenants, GPUs, partitions, machines and data. `impacts.yaml` has most of it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from gpuclusters.compat.dated_table import Row
from gpuclusters.core.codes import VALUE
from gpuclusters.core.model import LOADER
from gpuclusters.review.diffing import OTHER_SECRET, differences
from gpuclusters.review.fleet import fleet, host_of, partitions_of
from gpuclusters.review.plan import KEPT, Action, Plan, Resource, Step
from gpuclusters.review.text import listed, plural


class Weight(IntEnum):
    """How much a reviewer has to mind it."""

    LOOK = 1
    """Something pauses, or is made anew without a loss."""
    DANGER = 2
    """Containers end, data or isolation is lost, or a machine leaves."""


@dataclass(frozen=True, slots=True)
class Impact:
    """What one step does to those who use the cluster."""

    weight: Weight
    step: Step
    says: str
    """A sentence; names in it are not escaped yet."""
    machine: str = ""
    gpus: int = 0
    tenant: str = ""


class Does(StrEnum):
    DOWN = "down"
    """Containers on the machine's GPUs end."""
    PAUSES = "pauses"
    """The machine has to be looked at; nothing on it ends."""
    LOSES = "loses"
    """Something is lost, on no machine in particular."""
    LOOKS = "looks"
    """Something pauses, on no machine in particular."""
    NOTHING = "nothing"


class Effect(Row):
    """What a step does if all of this is so; `says` has words of `Case` in it."""

    when: tuple[Action, ...] = (Action.DELETE, Action.REPLACE)
    changes: tuple[str, ...] = ()
    """Inputs of which one differs."""
    beyond: tuple[str, ...] = ()
    """Inputs beside which another differs."""
    input: str = "version"
    """The one that `was` and `will` tell of."""
    other: bool = False
    """It is another one than before."""
    was: Mapping[str, Any] = {}
    """Inputs as they are before."""
    will: Mapping[str, Any] = {}
    """Inputs as they come, or as they are of what goes."""
    gpus: bool = False
    """The machine has some."""
    does: Does
    says: str = ""


@cache
def effects() -> Mapping[str, tuple[Effect, ...]]:
    """All of them, by the type of the resource."""
    text = Path(__file__).with_name("impacts.yaml").read_text(encoding="utf-8")
    rows = yaml.load(text, LOADER)  # noqa: S506 (a safe one)
    return TypeAdapter(dict[str, tuple[Effect, ...]]).validate_python(rows)


@cache
def _of_type(type_: str) -> tuple[Effect, ...]:
    found = (rows for pattern, rows in effects().items() if fnmatchcase(type_, pattern))
    return next(found, ())


@dataclass(frozen=True)
class Case:
    """A step on something that is there, or comes; and the words in which its effects are told."""

    plan: Plan
    step: Step

    @property
    def old(self) -> Resource:
        """What is there; of what comes, that."""
        return self.step.old or self.step.resource

    @property
    def new(self) -> Resource:
        """What comes; of what goes, that."""
        return self.step.resource

    @cached_property
    def machine(self) -> str:
        """The machine that it is on, or else its own name."""
        return host_of(self.plan, self.old) or self.step.name

    @property
    def gpus(self) -> int:
        """GPUs of that machine; 0 if the plan does not tell."""
        clusters = fleet(self.plan, after=False).values()
        known = [cluster.machines.get(self.machine) for cluster in clusters]
        return max((machine.gpus for machine in known if machine), default=0)

    @property
    def counted(self) -> str:
        """`8 GPUs`."""
        return plural(self.gpus, "GPU")

    @property
    def pods_end(self) -> str:
        return f"pods on its {self.counted} end" if self.gpus else "its pods end"

    @property
    def users(self) -> str:
        """Whose containers may run in the cluster, as part of a sentence."""
        clusters = fleet(self.plan, after=False).values()
        tenants = sorted({tenant for cluster in clusters for tenant in cluster.tenants})
        return f" of {listed(tenants)}" if tenants else ""

    @property
    def must_be_free(self) -> str:
        """The end of a sentence about the GPUs of the machine."""
        return (
            f"its {self.counted} must be free of containers{self.users}, or the update stops there"
        )

    @property
    def patience(self) -> str:
        """How long its node is drained at most, as part of a sentence."""
        seconds = self.new.at("drain_timeout_seconds")
        return f" (for {seconds / 60:g} min at most)" if isinstance(seconds, int | float) else ""

    @property
    def verb(self) -> str:
        """What becomes of something that goes, and why where it is made anew."""
        if self.step.action is Action.DELETE:
            return "is deleted"
        why = listed(sorted(set(self.step.replace_reasons)))
        because = f", because {why} cannot change in place" if why else ""
        return f"is deleted and made anew{because}"

    @property
    def chart(self) -> str:
        return f"the chart {self.old.text('chart') or self.step.name}"

    @cached_property
    def paths(self) -> list[str]:
        """Where it differs."""
        return [one.path for one in differences(self.step)]

    def changed(self, names: tuple[str, ...]) -> list[str]:
        """Which of these inputs differ."""
        return [name for name in names if any(_is_in(path, (name,)) for path in self.paths)]

    def has(self, effect: Effect) -> bool:
        return (
            self.step.action in effect.when
            and (not effect.changes or bool(self.changed(effect.changes)))
            and (not effect.beyond or not all(_is_in(path, effect.beyond) for path in self.paths))
            and (not effect.other or self.old.text(effect.input) != self.new.text(effect.input))
            and (not effect.gpus or self.gpus > 0)
            and all(self.old.at(name) == value for name, value in effect.was.items())
            and all(self.new.at(name) == value for name, value in effect.will.items())
        )

    def impact(self, effect: Effect) -> Impact:
        was, will = self.old.text(effect.input), self.new.text(effect.input)
        change = f"from {was} to {will}" if was and will and was != will else "anew"
        changed = listed(sorted(self.changed(effect.changes)))
        own = {"was": was, "will": will, "change": change, "changed": changed}

        def word(found: re.Match[str]) -> str:
            return str(own[found[1]] if found[1] in own else getattr(self, found[1]))

        says = VALUE.sub(word, effect.says)
        if effect.does is Does.DOWN:
            return self.down(says, self.gpus)
        weight = Weight.DANGER if effect.does is Does.LOSES else Weight.LOOK
        return Impact(weight, self.step, says, self.machine if effect.does is Does.PAUSES else "")

    def look(self, says: str) -> Impact:
        """Something pauses, on no machine in particular."""
        return Impact(Weight.LOOK, self.step, says)

    def down(self, says: str, gpus: int) -> Impact:
        """Containers on so many GPUs of the machine end."""
        return Impact(Weight.DANGER, self.step, says, self.machine, gpus)


def _is_in(path: str, names: tuple[str, ...]) -> bool:
    """Whether a difference is in one of these inputs."""
    return any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in names)


_MACHINE = "gpu-clusters:caas:GpuHost"
_OPENINGS = {
    "the internet": ("spec", "egress", "internet"),
    "the API server": ("spec", "egress", "apiServer"),
}


def impacts(plan: Plan) -> tuple[Impact, ...]:
    """What the steps of a plan take down, the worst first."""
    gone = [s for s in plan.steps if s.type == _MACHINE and s.action is Action.DELETE]
    leaving = {step.name for step in gone}
    found = [
        impact
        for step in plan.changed
        for impact in _of(plan, step)
        # That a machine leaves says it all.
        if step.action is not Action.DELETE or impact.machine not in leaving
    ]
    found += (impact for step in gone for impact in _of(plan, step))
    return tuple(sorted(found, key=lambda i: (-i.weight, i.step.urn, i.says)))


def _of(plan: Plan, step: Step) -> Iterator[Impact]:
    if step.unprotected:
        says = "is no longer protected: from then on it can be deleted like anything else"
        yield Impact(Weight.DANGER, step, says)
    case, goes = Case(plan, step), step.action in (Action.DELETE, Action.REPLACE)
    effect = next((one for one in _of_type(step.type) if case.has(one)), None)
    impact = None
    if effect is not None:
        impact = None if effect.does is Does.NOTHING else case.impact(effect)
    elif (goes or step.action is Action.UPDATE) and not step.is_component:
        judge = _JUDGES.get(step.type)
        impact = judge(case) if judge else None
        if impact is None and goes:
            impact = case.look(case.verb)
    if impact is not None:
        yield impact


def _partitions(case: Case) -> Impact | None:
    """A board that is repartitioned, or no longer kept partitioned."""
    before = partitions_of(case.old)
    if case.step.action is not Action.UPDATE:
        count = len({m for part in before.values() for m in part})
        return case.down(
            f"all NVSwitch partitions of {case.machine} are switched off: containers{case.users} on its "
            f"{plural(count, 'GPU')} lose NVLink, and the update stops at one that is in use",
            count,
        )
    gone = sorted(before.keys() - partitions_of(case.new).keys())
    if not gone or not case.changed(("layout", "partitions", "table")):
        return None
    cut = len({m for number in gone for m in before[number]})
    which = f"{'partition' if len(gone) == 1 else 'partitions'} {listed(list(map(str, gone)))}"
    return case.down(
        f"{case.machine} will be repartitioned: {which} with {plural(cut, 'GPU')} must be free of "
        f"containers{case.users}, or the update stops there",
        cut,
    )


def _tenancy(case: Case) -> Impact | None:
    tenant = case.old.text("tenant") or case.old.name
    gpus, new = _gpus_promised(case.old), _gpus_promised(case.new)
    if case.step.action is Action.DELETE:
        where = f"namespace {case.old.text('namespace') or tenant}"
        says = f"goes: {where} with all containers and volumes in it, and its {plural(gpus, 'GPU')}"
        return Impact(Weight.DANGER, case.step, f"tenant {tenant} {says}", "", gpus, tenant)
    if case.step.action is Action.REPLACE:
        says = f"tenant {tenant} {case.verb}: all its containers end"
        return Impact(Weight.DANGER, case.step, says, "", gpus, tenant)
    if new < gpus:
        instead = f"{plural(new, 'GPU')} instead of {gpus}"
        return case.look(
            f"tenant {tenant} may hold {instead}; containers above that stay until they end"
        )
    if opened := [word for word, path in _OPENINGS.items() if _opens(case, path)]:
        return case.look(f"containers of {tenant} may reach {' and '.join(opened)}")
    lost = sorted(_sizes(case.old) - _sizes(case.new))
    sizes = " or ".join(map(str, lost))
    says = f"tenant {tenant} can no longer ask for containers with {sizes} GPUs"
    return case.look(says) if lost else None


def _opens(case: Case, path: tuple[str, ...]) -> bool:
    return case.new.at(*path) is True and case.old.at(*path) is not True


def _sizes(resource: Resource) -> set[int]:
    sizes = resource.at("spec", "sizes")
    found = sizes if isinstance(sizes, list) else []
    return {int(size) for size in found if isinstance(size, int | float)}


def _gpus_promised(resource: Resource) -> int:
    value = resource.at("spec", "gpus")
    return int(value) if isinstance(value, int | float) else 0


def _secret(case: Case) -> Impact | None:
    fresh = [one.path for one in differences(case.step) if one.note == OTHER_SECRET]
    says = f"gets {plural(len(fresh), 'other secret')}: {listed(fresh)}"
    return case.look(says) if fresh else None


_UNITS = re.compile(r"[\w@-]+(?=\.service\b)")
_COMMANDS = {
    "packages": "packages that the machine lacks are installed",
    "kata": "the installation of Kata is verified again; nothing on the machine changes",
}
"""What our own commands do, by the end of their names."""


def _command(case: Case) -> Impact:
    said = _COMMANDS.get(case.step.name.rpartition("-")[2], "the command runs again")
    units = _UNITS.findall(case.new.text("create") or "")
    if units:
        said = f"{listed(units)} of {case.machine} restart; containers that run go on"
    return case.look(said)


_JUDGES: Mapping[str, Callable[[Case], Impact | None]] = {
    f"{KEPT}TenancyPolicy": _tenancy,
    f"{KEPT}FabricPartitions": _partitions,
    "command:remote:Command": _command,
    "kubernetes:core/v1:Secret": _secret,
}
"""Of steps that have none of the effects in the table."""
