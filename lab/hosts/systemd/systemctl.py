"""Stand-in for `systemctl`: units, their states, and the exit codes of systemctl(1)."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from fnmatch import fnmatch

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.program import program, typed
from lab.hosts.systemd import systemctl_user, units

_FLAGS = "-q --quiet --now --no-block --no-pager --value --all --plain --no-legend"
_NOT_RUNNING, _NO_SUCH_UNIT, _NOT_LOADED = 3, 4, 5
Act = Callable[[Call, list[str]], Answer | Coroutine[None, None, Answer]]


@program("systemctl", unknown=None, version="systemd 255 (255.4-1ubuntu8.10)")
async def systemctl(call: Call) -> Answer:
    if systemctl_user.is_for_account(call):
        return systemctl_user.run(call)
    call = typed(call, _FLAGS, "-p --property")
    if call.verb not in _VERBS:
        raise RefusedError(f"Unknown command verb '{call.verb}'.")
    act, changes = _VERBS[call.verb]
    full = [units.full_name(name) for name in call.words[1:]]
    if changes and not call.is_root:
        raise _denied(call.verb, full)
    await call.control.services.real.look()
    answer = act(call, full)
    return answer if isinstance(answer, Answer) else await answer


def _denied(verb: str, names: list[str]) -> RefusedError:
    hint = "Interactive authentication required."
    if not names:
        return RefusedError(f"Failed to {verb.replace('daemon-', '')} daemon: {hint}")
    more = f"See system logs and 'systemctl status {names[0]}' for details."
    return RefusedError(f"Failed to {verb} {names[0]}: {hint}\n{more}")


def _found(call: Call, unit: str, text: str, code: int) -> tuple[str, str]:
    """Path and text of a unit file that has to be there."""
    found = units.text(call.machine, unit)
    if found is None:
        raise RefusedError(text.format(unit=unit), code)
    return found


def _status(call: Call, names: list[str]) -> Answer:
    """What people look at; programs ask `is-active` and `show`."""
    blocks: list[str] = []
    states: list[str] = []
    for unit in names:
        found = _found(call, unit, "Unit {unit} could not be found.", _NO_SUCH_UNIT)
        entry = units.state(call.machine, unit)
        states.append(entry["active"])
        description = units.value(call.machine, unit, "Unit", "Description") or unit
        enabled = "enabled" if entry["enabled"] else "disabled"
        blocks.append(
            f"● {unit} - {description}\n     Loaded: loaded ({found[0]}; {enabled})\n"
            f"     Active: {entry['active']} ({_sub_state(call, unit, entry['active'])})\n"
        )
    return Answer(0 if {*states} == {"active"} else _NOT_RUNNING, "\n".join(blocks))


def _cat(call: Call, names: list[str]) -> Answer:
    blocks: list[str] = []
    for unit in names:
        found = _found(call, unit, "No files found for {unit}.", 1)
        parts = [found, *units.drop_ins(call.machine, unit)]
        blocks += [f"# {path}\n{content}" for path, content in parts]
    return Answer.out("\n".join(blocks))


def _show(call: Call, names: list[str]) -> Answer:
    wanted = ",".join(v for n in ("-p", "--property") for v in call.given.values.get(n, []))
    lines: list[str] = []
    for unit in names:
        found = units.text(call.machine, unit)
        entry = units.state(call.machine, unit) if found else units.NONE
        values = {
            "Id": unit,
            "LoadState": "loaded" if found else "not-found",
            "ActiveState": entry["active"],
            "SubState": _sub_state(call, unit, entry["active"]),
            "Type": units.kind(call.machine, unit) if found else "",
            "Result": entry["result"],
            "UnitFileState": ("enabled" if entry["enabled"] else "disabled") if found else "",
            "FragmentPath": found[0] if found else "",
            "DropInPaths": " ".join(path for path, _ in units.drop_ins(call.machine, unit)),
            "MainPID": str(entry["pid"]),
            "NRestarts": "0",
            "NeedDaemonReload": (
                "yes" if found and units.needs_reload(call.machine, unit) else "no"
            ),
        }
        keys = [key for key in wanted.split(",") if key in values] if wanted else list(values)
        lines += [values[key] if call.has("--value") else f"{key}={values[key]}" for key in keys]
    return Answer.out("\n".join(lines))


def _sub_state(call: Call, unit: str, active: str) -> str:
    if active == "active" and units.kind(call.machine, unit) == "oneshot":
        return "exited"
    return {"active": "running", "failed": "failed", "activating": "start"}.get(active, "dead")


def _reboot(call: Call, _: list[str]) -> Answer:
    call.control.reboot()
    return Answer()


def _daemon_reload(call: Call, _: list[str]) -> Answer:
    units.reload(call.machine)
    return Answer()


def _starter(verb: str) -> Act:
    async def act(call: Call, names: list[str]) -> Answer:
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
            if call.has("--no-block"):
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


def _reload(call: Call, names: list[str]) -> Answer:
    for unit in names:
        _found(call, unit, "Failed to reload {unit}: Unit {unit} not found.", _NOT_LOADED)
        if units.value(call.machine, unit, "Service", "ExecReload") is None:
            raise RefusedError(
                f"Failed to reload {unit}: Job type reload is not applicable for unit {unit}."
            )
        call.machine.note("unit", action="reload", unit=unit)
    return Answer()


async def _stop(call: Call, names: list[str]) -> Answer:
    for unit in names:
        _found(call, unit, "Failed to stop {unit}: Unit {unit} not loaded.", _NOT_LOADED)
        if units.state(call.machine, unit)["active"] in {"active", "activating"}:
            await call.control.services.stop(unit)
    return Answer()


def _enabler(*, enabled: bool) -> Act:
    verb = "enable" if enabled else "disable"

    async def act(call: Call, names: list[str]) -> Answer:
        said = ""
        for unit in names:
            found = _found(
                call, unit, f"Failed to {verb} unit: Unit file {{unit}} does not exist.", 1
            )
            entry = units.state(call.machine, unit)
            if entry["enabled"] != enabled:
                link = f"/etc/systemd/system/multi-user.target.wants/{unit}"
                made = f"Created symlink {link} → {found[0]}.\n"
                said += made if enabled else f'Removed "{link}".\n'
                call.machine.note("unit", action=verb, unit=unit)
            entry["enabled"] = enabled
            if call.has("--now") and units.is_active(call.machine, unit) != enabled:
                if not enabled:
                    await call.control.services.stop(unit)
                elif not await call.control.services.start(unit):
                    raise RefusedError(f"{said}Job for {unit} failed.")
        return Answer(stderr="" if call.has("-q", "--quiet") else said)

    return act


def _told(call: Call, words: list[str], *, success: bool, failure: int) -> Answer:
    out = "" if call.has("-q", "--quiet") else "".join(f"{word}\n" for word in words)
    return Answer(0 if success else failure, stdout=out)


def _states(call: Call, names: list[str]) -> list[str]:
    return [
        units.state(call.machine, unit)["active"] if units.text(call.machine, unit) else "inactive"
        for unit in names
    ]


def _is_active(call: Call, names: list[str]) -> Answer:
    states = _states(call, names)
    return _told(call, states, success="active" in states, failure=_NOT_RUNNING)


def _is_failed(call: Call, names: list[str]) -> Answer:
    states = _states(call, names)
    return _told(call, states, success="failed" in states, failure=1)


def _is_enabled(call: Call, names: list[str]) -> Answer:
    words: list[str] = []
    for unit in names:
        found = units.text(call.machine, unit)
        if found is None:
            words.append("not-found")
        elif "[Install]" not in found[1]:
            words.append("static")
        else:
            words.append("enabled" if units.state(call.machine, unit)["enabled"] else "disabled")
    if "not-found" in words:
        return _told(call, words, success=False, failure=_NO_SUCH_UNIT)
    return _told(call, words, success=bool({"enabled", "static"} & {*words}), failure=1)


def _list_units(call: Call, names: list[str]) -> Answer:
    patterns = [name.removesuffix(".service") if "*" in name else name for name in names]
    lines = [
        f"{unit} loaded {units.state(call.machine, unit)['active']}"
        for unit in units.known(call.machine)
        if not patterns or any(fnmatch(unit, pattern) for pattern in patterns)
    ]
    return Answer.out("\n".join(lines))


def _reset_failed(call: Call, names: list[str]) -> Answer:
    for unit in names or units.known(call.machine):
        entry = units.state(call.machine, unit)
        if entry["active"] == "failed":
            entry["active"] = "inactive"
    return Answer()


_VERBS: Mapping[str, tuple[Act, bool]] = {
    "cat": (_cat, False),
    "daemon-reexec": (_daemon_reload, True),
    "daemon-reload": (_daemon_reload, True),
    "disable": (_enabler(enabled=False), True),
    "enable": (_enabler(enabled=True), True),
    "is-active": (_is_active, False),
    "is-enabled": (_is_enabled, False),
    "is-failed": (_is_failed, False),
    "list-units": (_list_units, False),
    "reboot": (_reboot, True),
    "reload": (_reload, True),
    "reset-failed": (_reset_failed, True),
    "restart": (_starter("restart"), True),
    "show": (_show, False),
    "start": (_starter("start"), True),
    "status": (_status, False),
    "stop": (_stop, True),
    "try-restart": (_starter("try-restart"), True),
}
"""What each does, and whether only root may."""
