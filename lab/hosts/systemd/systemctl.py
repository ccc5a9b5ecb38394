"""Stand-in for `systemctl`: units, their states, and the exit codes of systemctl(1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from fnmatch import fnmatch

from lab.hosts.call import Answer, Call
from lab.hosts.systemd import systemctl_user, units


def status(call: Call, names: list[str], _: set[str]) -> Answer:
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
    blocks: list[str] = []
    for unit in names:
        found = units.text(call.machine, unit)
        if found is None:
            return Answer.error(f"No files found for {unit}.", 1)
        parts = [found, *units.drop_ins(call.machine, unit)]
        blocks += [f"# {path}\n{content}" for path, content in parts]
    return Answer.out("\n".join(blocks))


def show(call: Call, names: list[str], properties: list[str], flags: set[str]) -> Answer:
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

Act = Callable[[Call, list[str], set[str]], Coroutine[None, None, Answer]]

_QUIET = {"-q", "--quiet"}
_FLAGS = (
    _QUIET
    | {"-a", "--all", "-f", "--force", "--no-ask-password", "--no-block", "--no-legend"}
    | {"--no-pager", "--now", "--plain", "--system", "--value"}
)
_NOT_RUNNING, _NO_SUCH_UNIT, _NOT_LOADED = 3, 4, 5


async def run(call: Call) -> Answer:
    if "--version" in call.arguments:
        return Answer.out("systemd 255 (255.4-1ubuntu8.10)\n(stand-in of a simulated host)")
    if systemctl_user.is_for_account(call):
        return systemctl_user.run(call)
    flags: set[str] = set()
    words: list[str] = []
    properties: list[str] = []
    rest = list(call.arguments)
    while rest:
        argument = rest.pop(0)
        if argument in _FLAGS:
            flags.add(argument)
        elif argument in {"-p", "--property", "-t", "--type", "-n", "--lines"}:
            if not rest:
                return Answer.error(f"systemctl: option requires an argument -- '{argument}'", 1)
            value = rest.pop(0)
            properties += value.split(",") if argument in {"-p", "--property"} else []
        elif argument.startswith(("--property=", "-p")) and not argument.startswith("--p="):
            value = argument.removeprefix("--property=").removeprefix("-p")
            properties += value.split(",")
        elif argument.startswith(("--type=", "--lines=", "-n")):
            continue
        elif argument.startswith("-"):
            kind = "unrecognized option" if argument.startswith("--") else "invalid option --"
            shown = argument if argument.startswith("--") else argument[1]
            return Answer.error(f"systemctl: {kind} '{shown}'", 1)
        else:
            words.append(argument)
    verb, names = (words[0], words[1:]) if words else ("list-units", [])
    await call.control.services.real.look()
    if verb == "show":
        return show(call, names, properties, flags)
    if verb not in {*_VERBS, *_ACTS, "reboot", "poweroff"}:
        return Answer.error(f"Unknown command verb '{verb}'.", 1)
    if verb in _CHANGES and not call.is_root:
        return _denied(verb, names)
    if verb in {"reboot", "poweroff"}:
        return _power(call, verb, names)
    full = [units.full_name(name) for name in names]
    if verb in _ACTS:
        return await _ACTS[verb](call, full, flags)
    return _VERBS[verb](call, full, flags)


def _power(call: Call, verb: str, names: list[str]) -> Answer:
    if names or verb != "reboot":
        return Answer.error(f"{verb}: not available on a simulated host", 1)
    call.control.reboot()
    return Answer()


def _denied(verb: str, names: Sequence[str]) -> Answer:
    hint = "Interactive authentication required."
    if verb == "daemon-reload":
        return Answer.error(f"Failed to reload daemon: {hint}", 1)
    name = units.full_name(names[0]) if names else ""
    hint += f"\nSee system logs and 'systemctl status {name}' for details."
    return Answer.error(f"Failed to {verb} {name}: {hint}", 1)


def _daemon_reload(call: Call, names: list[str], _: set[str]) -> Answer:
    if names:
        return Answer.error("Too many arguments.", 1)
    units.reload(call.machine)
    return Answer()


def _starter(verb: str) -> Act:
    async def act(call: Call, names: list[str], flags: set[str]) -> Answer:
        if not names:
            return Answer.error("Too few arguments.", 1)
        exit_code, messages = 0, list[str]()
        for unit in names:
            if units.text(call.machine, unit) is None:
                messages.append(f"Failed to {verb} {unit}: Unit {unit} not found.")
                exit_code = _NOT_LOADED
                continue
            if units.needs_reload(call.machine, unit):
                messages.append(
                    f"Warning: The unit file, source configuration file or drop-ins of {unit} "
                    "changed on disk. Run 'systemctl daemon-reload' to reload units."
                )
            running = units.is_active(call.machine, unit)
            if (verb == "start" and running) or (verb == "try-restart" and not running):
                continue
            if "--no-block" in flags:
                _queued(call, unit, verb)
                continue
            if not await call.control.services.start(unit, action=verb):
                messages.append(
                    f"Job for {unit} failed because the control process exited with error code.\n"
                    f'See "systemctl status {unit}" and "journalctl -xeu {unit}" for details.'
                )
                exit_code = exit_code or 1
        return Answer(exit_code, stderr="".join(f"{line}\n" for line in messages))

    return act


_jobs: set[asyncio.Task[bool]] = set()


def _queued(call: Call, unit: str, verb: str) -> None:
    """Start a unit without waiting for it; until it runs it is `activating`."""
    units.activating(call.machine, unit)
    job = asyncio.create_task(call.control.services.start(unit, action=verb))
    _jobs.add(job)
    job.add_done_callback(_jobs.discard)


def _reload(call: Call, names: list[str], _: set[str]) -> Answer:
    for unit in names:
        if units.text(call.machine, unit) is None:
            return Answer.error(f"Failed to reload {unit}: Unit {unit} not found.", _NOT_LOADED)
        if units.option(units.text(call.machine, unit)[1], "Service", "ExecReload") is None:  # type: ignore[index]
            return Answer.error(
                f"Failed to reload {unit}: Job type reload is not applicable for unit {unit}.", 1
            )
        call.machine.note("unit", action="reload", unit=unit)
    return Answer()


async def _stop(call: Call, names: list[str], _: set[str]) -> Answer:
    if not names:
        return Answer.error("Too few arguments.", 1)
    for unit in names:
        if units.text(call.machine, unit) is None:
            return Answer.error(f"Failed to stop {unit}: Unit {unit} not loaded.", _NOT_LOADED)
        if units.state(call.machine, unit)["active"] in {"active", "activating"}:
            await call.control.services.stop(unit)
    return Answer()


async def _enable(call: Call, names: list[str], flags: set[str]) -> Answer:
    return await _set_enabled(call, names, flags, enabled=True)


async def _disable(call: Call, names: list[str], flags: set[str]) -> Answer:
    return await _set_enabled(call, names, flags, enabled=False)


async def _set_enabled(call: Call, names: list[str], flags: set[str], *, enabled: bool) -> Answer:
    verb = "enable" if enabled else "disable"
    if not names:
        return Answer.error("Too few arguments.", 1)
    messages: list[str] = []
    for unit in names:
        found = units.text(call.machine, unit)
        if found is None:
            text = f"Failed to {verb} unit: Unit file {unit} does not exist."
            return Answer(1, stderr="".join(messages) + text + "\n")
        entry = units.state(call.machine, unit)
        wanted = f"/etc/systemd/system/multi-user.target.wants/{unit}"
        if enabled and not entry["enabled"]:
            messages.append(f"Created symlink {wanted} → {found[0]}.\n")
        if not enabled and entry["enabled"]:
            messages.append(f'Removed "{wanted}".\n')
        if entry["enabled"] != enabled:
            call.machine.note("unit", action=verb, unit=unit)
        entry["enabled"] = enabled
        if "--now" in flags and units.is_active(call.machine, unit) != enabled:
            if not enabled:
                await call.control.services.stop(unit)
            elif not await call.control.services.start(unit):
                return Answer(1, stderr="".join(messages) + f"Job for {unit} failed.\n")
    quiet = flags & _QUIET
    return Answer(stderr="" if quiet else "".join(messages))


def _is_active(call: Call, names: list[str], flags: set[str]) -> Answer:
    states = [_active_state(call, unit) for unit in names]
    found = "active" in states
    out = "" if flags & _QUIET else "".join(f"{state}\n" for state in states)
    return Answer(0 if found else _NOT_RUNNING, stdout=out)


def _is_failed(call: Call, names: list[str], _: set[str]) -> Answer:
    states = [_active_state(call, unit) for unit in names]
    return Answer(0 if "failed" in states else 1, stdout="".join(f"{s}\n" for s in states))


def _active_state(call: Call, unit: str) -> str:
    if units.text(call.machine, unit) is None:
        return "inactive"
    return str(units.state(call.machine, unit)["active"])


def _is_enabled(call: Call, names: list[str], flags: set[str]) -> Answer:
    words: list[str] = []
    for unit in names:
        found = units.text(call.machine, unit)
        if found is None:
            words.append("not-found")
        elif "[Install]" not in found[1]:
            words.append("static")
        else:
            entry = units.state(call.machine, unit)
            words.append("enabled" if entry["enabled"] else "disabled")
    out = "" if flags & _QUIET else "".join(f"{word}\n" for word in words)
    if "not-found" in words:
        return Answer(_NO_SUCH_UNIT, stdout=out)
    return Answer(0 if {"enabled", "static"} & set(words) else 1, stdout=out)


def _list_units(call: Call, names: list[str], _: set[str]) -> Answer:
    patterns = [name.removesuffix(".service") if "*" in name else name for name in names]
    lines = [
        f"{unit} loaded {units.state(call.machine, unit)['active']}"
        for unit in units.known(call.machine)
        if not patterns or any(fnmatch(unit, pattern) for pattern in patterns)
    ]
    return Answer.out("\n".join(lines))


def _reset_failed(call: Call, names: list[str], _: set[str]) -> Answer:
    for unit in names or units.known(call.machine):
        entry = units.state(call.machine, unit)
        if entry["active"] == "failed":
            entry["active"] = "inactive"
    return Answer()


_ACTS: dict[str, Act] = {
    "disable": _disable,
    "enable": _enable,
    "restart": _starter("restart"),
    "start": _starter("start"),
    "stop": _stop,
    "try-restart": _starter("try-restart"),
}
_VERBS: dict[str, Callable[[Call, list[str], set[str]], Answer]] = {
    "cat": cat,
    "daemon-reexec": _daemon_reload,
    "daemon-reload": _daemon_reload,
    "is-active": _is_active,
    "is-enabled": _is_enabled,
    "is-failed": _is_failed,
    "list-units": _list_units,
    "reload": _reload,
    "reset-failed": _reset_failed,
    "status": status,
}
_CHANGES = frozenset({*_VERBS, *_ACTS, "reboot"}) - {
    "cat", "is-active", "is-enabled", "is-failed", "list-units", "status",
}  # fmt: skip
