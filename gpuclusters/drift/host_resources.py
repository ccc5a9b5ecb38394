"""What the resources of machines tell, each in the words of its own provider, as findings with names.

A provider says in `drift` how a machine differs. The words are ours (`gpuclusters/domain`), so that their
kind is known by them; a test holds sentences of the domain against these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpuclusters.drift.engine import Seen
from gpuclusters.drift.finding import Finding
from gpuclusters.review.diffing import differences
from gpuclusters.review.plan import Action, Resource, Step

Rules = Sequence[tuple[re.Pattern[str], str]]
"""Kind by the words; the first that fits. A group `what` names the file, function or unit."""


def rules_of(*pairs: tuple[str, str]) -> Rules:
    """Patterns and kinds; the last one has to fit everything."""
    return tuple((re.compile(pattern), kind) for pattern, kind in pairs)


_UNIT = r"(?P<what>\S+\.(?:service|timer)) is "
_BOOT: Final = rules_of(
    (r"(?P<what>/\S+) is gone", "boot-file-missing"),
    (r"(?P<what>/\S+) was changed", "boot-file-changed"),
    (r"the next boot would not have", "kernel-command-line-changed"),
    (r"the running kernel lacks", "kernel-arguments-missing"),
    (r"", "boot-not-settled"),
)
_VFIO: Final = rules_of(
    (r"(?P<what>/\S+) (?:is gone|was changed)", "vfio-file-changed"),
    (_UNIT, "unit-changed"),
    (r"(?P<what>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)", "vfio-unbound"),
    (r"", "vfio-unbound"),
)
_VM: Final = rules_of(
    (r"the unit that starts the VM", "unit-changed"),
    (r"the VM does not run", "fabric-manager-not-ready"),
    (r"", "service-vm-changed"),
)
_DRIVER: Final = rules_of(
    (r"the kernel runs no driver", "driver-missing"),
    (r"the kernel runs driver", "driver-replaced"),
    (r"module \S+ is on the disk", "driver-replaced"),
    (r"packages are not there", "driver-replaced"),
    (r"nouveau is loaded", "driver-replaced"),
    (r"driver \S+ is installed on the host", "driver-replaced"),
    (r"\d+ of \d+ GPUs are on the bus", "gpu-missing"),
    (r"the fabric manager is", "fabric-manager-not-ready"),
    (r"(?P<what>/\S+) differs", "driver-changed"),
    (r"", "driver-changed"),
)
_RKE2: Final = rules_of(
    (r"(?P<what>/\S+) differs", "rke2-config-changed"),
    (r"(?P<what>rke2-\w+(?:\.service)?) is ", "rke2-unit-changed"),
    (r"", "rke2-changed"),
)
_PREFLIGHT: Final = {
    "preflight.driver-loaded": "driver-replaced",
    "preflight.driver-installed": "driver-replaced",
    "preflight.off-the-bus": "gpu-missing",
    "preflight.function-missing": "gpu-missing",
}
"""What a preflight finds that has a name of its own here."""

_WANTED = {
    "kernel-command-line-changed": "all its arguments at every boot",
    "kernel-arguments-missing": "all its arguments in the running kernel",
    "boot-file-missing": "the file, as written by `up`",
    "vfio-unbound": "on vfio-pci",
    "unit-changed": "enabled and active",
    "rke2-unit-changed": "active",
}


def boot(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """HostBoot: kernel arguments and what belongs to them."""
    yield from told(seen, _BOOT, up=up, fallback="kernel and boot files")


def vfio(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """VfioBinding: functions on vfio-pci, now and at every boot."""
    yield from told(seen, _VFIO, up=up, fallback="PCI functions")


def machine(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """Preflight: whether a prepared machine is fit. What it finds, `up` refuses; it does not mend it."""
    for line in _texts(seen.new, "findings"):
        name, _, rest = line.partition(": ")
        read, _, remedy = rest.partition("; expected ")
        expected, _, remedy = remedy.partition("; ")
        yield Finding(
            _PREFLIGHT.get(name, "machine-unfit"),
            seen.host,
            name,
            declared=expected,
            found=read,
            up=None if up is None else False,
            do=remedy,
            urn=seen.urn,
        )


def cdi(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """CdiSpec: the file by which containers get GPUs."""
    path = str(seen.old.at("path"))
    kind = f"{seen.old.at('kind')}, {len(seen.old.at('devices') or ())} devices"
    if seen.new is None:
        yield Finding("cdi-file-missing", seen.host, path, kind, "no file", up=up, urn=seen.urn)
        return
    said = _texts(seen.new, "drift")
    if said:
        yield Finding(
            "cdi-file-changed", seen.host, path, kind, "; ".join(said), up=up, urn=seen.urn
        )


def file(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """HostFile: one file."""
    path = str(seen.old.at("path"))
    if seen.new is None:
        yield Finding(
            "host-file-missing", seen.host, path, "the file", "no file", up=up, urn=seen.urn
        )
        return
    lines = _property_lines(seen)
    if lines:
        found = f"{len(lines)} differences" if len(lines) > 1 else lines[0]
        yield Finding(
            "host-file-changed",
            seen.host,
            path,
            "as written by `up`",
            found,
            up=up,
            urn=seen.urn,
            details=lines if len(lines) > 1 else (),
        )


def unit(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """HostUnit: a unit with its file, enabled, active."""
    name = str(seen.old.at("unit"))
    if seen.new is None:
        yield Finding("unit-changed", seen.host, name, "the unit", "no unit", up=up, urn=seen.urn)
        return
    lines = _property_lines(seen)
    if lines:
        yield Finding(
            "unit-changed",
            seen.host,
            name,
            "as written, enabled and active as declared",
            "; ".join(lines),
            up=up,
            urn=seen.urn,
        )


def service_vm(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """ServiceVm: the VM with the NVSwitches, and the fabric manager in it."""
    name = str(seen.old.at("name") or "service VM")
    if seen.new is None:
        yield Finding("service-vm-missing", seen.host, name, "the VM", "no VM", up=up, urn=seen.urn)
        return
    yield from told(seen, _VM, up=up, fallback=name)
    before, after = seen.old.outputs, seen.new.outputs
    if after.get("state") not in (before.get("state"), "ready"):
        yield Finding(
            "fabric-manager-not-ready",
            seen.host,
            name,
            str(before.get("state") or "ready"),
            str(after.get("state")),
            up=up,
            urn=seen.urn,
        )
    elif before.get("run") and after.get("run") and before["run"] != after["run"]:
        yield Finding(
            "fabric-manager-restarted",
            seen.host,
            name,
            "the run that was told which partitions are active",
            "another run",
            up=up,
            urn=seen.urn,
        )
    wanted = str(seen.old.at("fabric_manager", "version") or "")
    version = str(after.get("fabric_manager_version") or "")
    if wanted and version and version != wanted:
        yield Finding(
            "fabric-manager-version-changed", seen.host, name, wanted, version, urn=seen.urn
        )


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
            "partition-inactive",
            seen.host,
            f"partition {number} of {board}",
            "active",
            f"active are {_listed(active)}",
            up=up,
            urn=seen.urn,
        )
    for number in sorted(active - wanted):
        yield Finding(
            "partition-foreign",
            seen.host,
            f"partition {number} of {board}",
            f"active are {_listed(wanted)}",
            "active",
            up=up,
            urn=seen.urn,
        )
    for line in sorted({*_texts(seen.new, "warnings")} - {*_texts(seen.old, "warnings")}):
        yield Finding("fabric-warning", seen.host, board, found=line, urn=seen.urn)


def driver(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """GpuDriver: NVIDIA's driver on a machine that runs it itself."""
    version = str(seen.old.at("version") or "none on the host")
    if seen.new is None:
        yield Finding(
            "driver-missing", seen.host, "driver", version, "nothing of it", up=up, urn=seen.urn
        )
        return
    yield from told(seen, _DRIVER, up=up, fallback="driver", declared=f"driver {version}")
    if seen.new.outputs.get("reboot_pending") and not seen.old.outputs.get("reboot_pending"):
        yield Finding(
            "reboot-pending",
            seen.host,
            "reboot",
            "none needed",
            "the driver needs one",
            up=up,
            urn=seen.urn,
        )


def rke2(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """Rke2Node: a server or an agent."""
    version = str(seen.old.at("version"))
    if seen.new is None:
        yield Finding("rke2-missing", seen.host, "RKE2", version, "no RKE2", up=up, urn=seen.urn)
        return
    found = str(seen.new.outputs.get("installed_version") or "")
    if found and found != version:
        yield Finding(
            "rke2-version-changed", seen.host, "RKE2", version, found, up=up, urn=seen.urn
        )
    yield from told(seen, _RKE2, up=up, fallback="RKE2")


def told(
    seen: Seen, rules: Rules, *, up: bool | None, fallback: str, declared: str = ""
) -> Iterator[Finding]:
    """A finding for each sentence of `drift`; a resource that is gone has one that says so."""
    if seen.new is None:
        last = rules[-1][1]
        yield Finding(
            last,
            seen.host,
            fallback,
            "as made by `up`",
            "nothing of it is there",
            up=up,
            urn=seen.urn,
        )
        return
    for line in dict.fromkeys(_texts(seen.new, "drift")):
        kind, what = named(rules, line)
        yield Finding(
            kind,
            seen.host,
            what or fallback,
            _WANTED.get(kind, declared or "as left by `up`"),
            line,
            up=up,
            urn=seen.urn,
        )


def named(rules: Rules, line: str) -> tuple[str, str]:
    """Kind and subject of a provider's sentence."""
    for pattern, kind in rules:
        found = pattern.search(line)
        if found:
            return kind, str(found.groupdict().get("what") or "")
    raise AssertionError(f"no rule fits {line!r}")


def property_lines(seen: Seen) -> tuple[str, ...]:
    """How the inputs differ, a line each: what is there in the place of what was declared."""
    return _property_lines(seen)


def _property_lines(seen: Seen) -> tuple[str, ...]:
    if seen.new is None:
        return ()
    step = Step(Action.UPDATE, seen.urn, seen.old, seen.new)
    lines: list[str] = []
    for one in differences(step):
        if one.path in ("", "drift") and one.before is None and one.after is None:
            continue
        if one.lines:
            lines += [f"{one.path}: {line}" for line in one.lines]
        else:
            after = "nothing" if one.after is None else one.after
            before = "nothing" if one.before is None else one.before
            lines.append(f"{one.path}: {after} instead of {before}")
    return tuple(lines)


def _texts(resource: Resource | None, key: str) -> list[str]:
    value: Any = resource.outputs.get(key) if resource is not None else None
    if not isinstance(value, list):
        return []
    return [text for text in value if isinstance(text, str)]


def _numbers(value: Any) -> set[int]:
    return {int(n) for n in value or () if isinstance(n, int | float)}


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
