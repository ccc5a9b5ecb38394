"""What `systemctl` shows of units: `status`, `show`, `cat`."""

from __future__ import annotations

import time

from lab.hosts.standins import units
from lab.hosts.standins.call import Answer, Call

_NOT_RUNNING, _NO_SUCH_UNIT = 3, 4


def status(call: Call, names: list[str], _: set[str]) -> Answer:
    """What people read of units."""
    blocks: list[str] = []
    exit_code = 0
    for unit in names:
        found = units.text(call.machine, unit)
        if found is None:
            return Answer.error(f"Unit {unit} could not be found.", _NO_SUCH_UNIT)
        entry = units.state(call.machine, unit)
        active = entry["active"]
        exit_code = exit_code if active == "active" else _NOT_RUNNING
        description = units.option(found[1], "Unit", "Description") or unit
        enabled = "enabled" if entry["enabled"] else "disabled"
        since = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(entry["since"]))
        sub, bullet = _SHOWN[active]
        blocks.append(
            f"{bullet} {unit} - {description}\n"
            f"     Loaded: loaded ({found[0]}; {enabled}; preset: enabled)\n"
            f"     Active: {active} ({sub}) since {since}\n"
            + (f"   Main PID: {entry['pid']}\n" if entry["pid"] else "")
        )
    return Answer(exit_code, stdout="\n".join(blocks))


def cat(call: Call, names: list[str], _: set[str]) -> Answer:
    """The files of units."""
    blocks: list[str] = []
    for unit in names:
        found = units.text(call.machine, unit)
        if found is None:
            return Answer.error(f"No files found for {unit}.", 1)
        parts = [found, *units.drop_ins(call.machine, unit)]
        blocks += [f"# {path}\n{content}" for path, content in parts]
    return Answer.out("\n".join(blocks))


def show(call: Call, names: list[str], properties: list[str], flags: set[str]) -> Answer:
    """Properties of units, for programs."""
    lines: list[str] = []
    for unit in map(units.full_name, names):
        found = units.text(call.machine, unit)
        entry = units.state(call.machine, unit) if found else None
        active = entry["active"] if entry else "inactive"
        values = {
            "Id": unit,
            "LoadState": "loaded" if found else "not-found",
            "ActiveState": active,
            "SubState": _sub_state(call, unit, active),
            "Type": units.kind(call.machine, unit) if found else "",
            "Result": entry.get("result", "success") if entry else "success",
            "UnitFileState": ("enabled" if entry["enabled"] else "disabled") if entry else "",
            "FragmentPath": found[0] if found else "",
            "DropInPaths": " ".join(path for path, _ in units.drop_ins(call.machine, unit)),
            "MainPID": str(entry["pid"] if entry else 0),
            "NRestarts": "0",
            "NeedDaemonReload": (
                "yes" if entry and units.needs_reload(call.machine, unit) else "no"
            ),
        }
        for key, value in values.items():
            if not properties or key in properties:
                lines.append(value if "--value" in flags else f"{key}={value}")
    return Answer.out("\n".join(lines))


def _sub_state(call: Call, unit: str, active: str) -> str:
    if active == "active" and units.kind(call.machine, unit) == "oneshot":
        return "exited"
    return {"active": "running", "failed": "failed", "activating": "start"}.get(active, "dead")


_SHOWN = {
    "active": ("running", "●"),
    "activating": ("start", "●"),
    "failed": ("Result: exit-code", "\N{MULTIPLICATION SIGN}"),
    "inactive": ("dead", "○"),
}
