"""What the resources of machines tell, each in the words of its own provider, as findings with names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuclusters.core import codes
from gpuclusters.core.finding import Level
from gpuclusters.drift.engine import Reader, Seen, property_lines, texts
from gpuclusters.drift.finding import Finding
from gpuclusters.preflight.decide import AREA, ONLY_BARE

_UNIT = r"(?P<what>\S+\.(?:service|timer)) is "
_PREFLIGHT: Final = {
    "preflight.driver-loaded": "driver.installed",
    "preflight.driver-installed": "driver.installed",
    "preflight.off-the-bus": "driver.gpu-count",
    "preflight.function-missing": "driver.gpu-count",
}
"""What a preflight finds that has a name of its own here."""


def converging(area: str) -> Reader:
    """A resource that tells its drift as findings of an area."""

    def read(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
        what = str(seen.old.at("path") or seen.old.name)
        if seen.new is None:
            yield Finding(f"{area}.missing", seen.host, what, up=up, urn=seen.urn)
            return
        found = seen.new.outputs.get("drift") or ()
        details = property_lines(seen) if len(found) == 1 else ()
        for one in found:
            # What blocks `up`, or is only told, is nothing that `up` puts back.
            back = up if one["level"] == Level.REPAIR else up and False
            yield Finding(
                one["code"],
                seen.host,
                one["path"][-1] if one["path"] else what,
                "as left by `up`",
                one["problem"],
                up=back,
                urn=seen.urn,
                details=details,
            )

    return read


def machine(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """Preflight: whether a prepared machine is fit. What it finds, `up` refuses; it does not mend it."""
    found = (seen.new.outputs.get("findings") or ()) if seen.new else ()
    yield from _unfit(seen, seen.host, found, "fit for virtual machines", up=up)


def fleet(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """FleetPreflight: what keeps a machine from being prepared, and is not told of the prepared machine."""
    by_machine = (seen.new.outputs.get("findings") or {}) if seen.new else {}
    for host, all_of_it in by_machine.items():
        found = [one for one in all_of_it if one["code"].removeprefix(AREA) in ONLY_BARE]
        yield from _unfit(seen, host, found, "fit to be prepared", up=up)


def _unfit(
    seen: Seen, host: str, found: Iterable[Mapping[str, Any]], declared: str, *, up: bool | None
) -> Iterator[Finding]:
    for one in found:
        code = one["code"]
        yield Finding(
            _PREFLIGHT.get(code, "host.unfit"),
            host,
            code,
            declared=declared,
            found=one["problem"],
            up=None if up is None else False,
            do=codes.listed()[code].do,
            urn=seen.urn,
        )


def service_vm(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """ServiceVm: the VM with the NVSwitches, and the run of the fabric manager in it."""
    yield from converging("service-vm")(seen, up=up)
    if seen.new is None:
        return
    name, before, after = str(seen.old.at("name")), seen.old.outputs, seen.new.outputs
    if after.get("state") == "waiting-for-list" != before.get("state"):
        kind, declared, found = "fabric.manager-not-ready", before.get("state"), after["state"]
    elif after.get("state") == "ready" and before.get("run") and before["run"] != after.get("run"):
        kind = "fabric.manager-restarted"
        declared, found = "the run that was told which partitions are active", "another run"
    else:
        return
    yield Finding(kind, seen.host, name, str(declared), found, up=up, urn=seen.urn)


def fabric(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """FabricPartitions: which are active. What leases have down for a while counts as active there."""
    if seen.new is None:
        return
    declared = seen.old.at("partitions")
    if declared is None:
        declared = seen.old.outputs.get("applied")
    active, wanted = _numbers(seen.new.outputs.get("active")), _numbers(declared)
    board = str(seen.old.at("board"))
    for number in sorted(wanted - active):
        yield Finding(
            "fabric.partition-inactive",
            seen.host,
            f"partition {number} of {board}",
            "active",
            f"active are {_listed(active)}",
            up=up,
            urn=seen.urn,
        )
    for number in sorted(active - wanted):
        yield Finding(
            "fabric.partition-foreign",
            seen.host,
            f"partition {number} of {board}",
            f"active are {_listed(wanted)}",
            "active",
            up=up,
            urn=seen.urn,
        )
    for line in sorted({*texts(seen.new, "warnings")} - {*texts(seen.old, "warnings")}):
        yield Finding("fabric.warning", seen.host, board, found=line, urn=seen.urn)


def _numbers(value: Any) -> set[int]:
    return {int(n) for n in value or () if isinstance(n, int | float)}


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
