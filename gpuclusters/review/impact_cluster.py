"""What happens in a cluster: tenants that go, data that is lost, programs that pause."""

from __future__ import annotations

from gpuclusters.review.diffing import OTHER_SECRET, differences
from gpuclusters.review.impact_case import Case, Impact, Rule, Weight, verb
from gpuclusters.review.plan import Action, Resource
from gpuclusters.review.text import listed, plural


def tenancy(case: Case) -> Impact | None:
    """A tenant."""
    tenant = case.old.text("tenant") or case.old.name
    gpus = _gpus_promised(case.old)
    if case.step.action is Action.DELETE:
        return Impact(
            Weight.DANGER,
            case.step,
            f"tenant {tenant} goes: namespace {case.old.text('namespace') or tenant} with all containers and "
            f"volumes in it, and its {plural(gpus, 'GPU')}",
            gpus=gpus,
            tenant=tenant,
        )
    if case.step.action is Action.REPLACE:
        return Impact(
            Weight.DANGER,
            case.step,
            f"tenant {tenant} {verb(case.step)}: all its containers end",
            "",
            gpus,
            tenant,
        )
    new = _gpus_promised(case.new)
    if new < gpus:
        return Impact(
            Weight.LOOK,
            case.step,
            f"tenant {tenant} may hold {plural(new, 'GPU')} instead of {gpus}; containers above that stay "
            "until they end",
        )
    opened = [word for word, path in _OPENINGS.items() if _opens(case, path)]
    if opened:
        return Impact(
            Weight.LOOK, case.step, f"containers of {tenant} may reach {' and '.join(opened)}"
        )
    lost = sorted(_sizes(case.old) - _sizes(case.new)) if case.new else []
    if lost:
        return Impact(
            Weight.LOOK,
            case.step,
            f"tenant {tenant} can no longer ask for containers with {' or '.join(map(str, lost))} GPUs",
        )
    return None


_OPENINGS = {
    "the internet": ("spec", "egress", "internet"),
    "the API server": ("spec", "egress", "apiServer"),
}


def _opens(case: Case, path: tuple[str, ...]) -> bool:
    return case.new is not None and case.new.at(*path) is True and case.old.at(*path) is not True


def _sizes(resource: Resource) -> set[int]:
    sizes = resource.at("spec", "sizes")
    return (
        {int(size) for size in sizes if isinstance(size, int | float)}
        if isinstance(sizes, list)
        else set()
    )


def _gpus_promised(resource: Resource | None) -> int:
    value = resource.at("spec", "gpus") if resource else None
    return int(value) if isinstance(value, int | float) else 0


def data(what: str) -> Rule:
    """A rule for what holds something that only it has."""

    def rule(case: Case) -> Impact | None:
        if case.step.action is Action.UPDATE:
            return None
        return Impact(Weight.DANGER, case.step, f"{verb(case.step)}, {what}")

    return rule


def release(case: Case) -> Impact | None:
    """A Helm release."""
    chart = case.old.text("chart") or case.step.name
    if case.step.action is Action.DELETE:
        return Impact(
            Weight.DANGER, case.step, f"the chart {chart} is uninstalled with all that it made"
        )
    if case.step.action is Action.REPLACE:
        return Impact(
            Weight.DANGER,
            case.step,
            f"the chart {chart} is uninstalled and installed again: what it runs pauses",
        )
    was, will = case.old.text("version"), case.new.text("version") if case.new else None
    if was != will:
        return Impact(
            Weight.LOOK,
            case.step,
            f"the chart {chart} goes from {was} to {will}: its pods are rolled",
        )
    if not any(d.path.startswith(("values", "valueYamlFiles")) for d in differences(case.step)):
        return None  # how long Helm waits, for example
    return Impact(
        Weight.LOOK,
        case.step,
        f"the chart {chart} gets other values: pods that read them are rolled",
    )


def workload(case: Case) -> Impact | None:
    """Programs that run in pods."""
    if case.step.action is not Action.UPDATE:
        return Impact(Weight.LOOK, case.step, f"{verb(case.step)}: its pods end")
    paths = [d.path for d in differences(case.step)]
    if any(path.startswith("spec.template") for path in paths):
        return Impact(Weight.LOOK, case.step, "its pods are rolled")
    return None


def secret(case: Case) -> Impact | None:
    """Secrets of programs."""
    if case.step.action is not Action.UPDATE:
        return Impact(Weight.LOOK, case.step, f"{verb(case.step)}, with the secrets in it")
    fresh = [found.path for found in differences(case.step) if found.note == OTHER_SECRET]
    if not fresh:
        return None
    return Impact(
        Weight.LOOK, case.step, f"gets {plural(len(fresh), 'other secret')}: {listed(fresh)}"
    )


def command(case: Case) -> Impact | None:
    """A command that is run on a machine."""
    if case.step.action is Action.DELETE:
        return Impact(Weight.NONE, case.step, "its command for removal is run, if it has one")
    return Impact(Weight.LOOK, case.step, "the command runs again")


def small(case: Case) -> Impact | None:
    """What is put back on the machine without anybody noticing."""
    return (
        Impact(Weight.NONE, case.step, verb(case.step))
        if case.step.action is not Action.UPDATE
        else None
    )
