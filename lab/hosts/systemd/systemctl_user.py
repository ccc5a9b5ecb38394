"""Stand-in for `systemctl --user`, for an account (`--machine=NAME@.host`) too, and for user@UID.service.

Exit status and words after systemctl(1): without a bus "Failed to connect to bus: No medium found".
"""

import re

from lab.hosts import accounts
from lab.hosts.accounts import Account
from lab.hosts.call import Answer, Call
from lab.hosts.program import typed
from lab.hosts.systemd import units, user_manager
from lab.hosts.usernetes import rootless

_NOT_RUNNING, _NO_SUCH_UNIT, _NOT_LOADED = 3, 4, 5
_MANAGER = re.compile(r"user@([0-9]+)\.service")
_NO_BUS = "Failed to connect to bus: No medium found"
_CHANGES = {"start", "stop", "restart", "try-restart", "enable", "disable", "reset-failed"}


def is_for_account(call: Call) -> bool:
    """Whether the command is about an account's units, or about its systemd itself."""
    return "--user" in call.arguments or any(_MANAGER.fullmatch(a) for a in call.arguments)


def run(call: Call) -> Answer:
    if "--user" not in call.arguments:
        return _manager(call)
    call = typed(call, "--user --now --no-pager -q --quiet", "-M --machine -p")
    machine = call.value("-M", "--machine") or ""
    account = _account(call, machine)
    if account is None or not user_manager.reachable(call.machine, account, call.faults):
        return Answer.error(_NO_BUS, 1)
    verb, names = call.verb, call.words[1:]
    if verb in {"daemon-reload", "is-system-running"}:
        return Answer() if verb == "daemon-reload" else Answer.out("running")
    if verb not in {*_CHANGES, "is-active", "is-enabled", "status", "show"}:
        return Answer.error(f"Unknown command verb '{verb}'.", 1)
    answers = [_act(call, account, verb, units.full_name(name)) for name in names]
    return Answer(
        max((a.exit for a in answers), default=1),
        "".join(a.stdout for a in answers),
        "".join(a.stderr for a in answers),
    )


def _account(call: Call, machine: str) -> Account | None:
    if machine:
        if not call.is_root:
            return None
        return accounts.accounts(call.machine).get(machine.partition("@")[0])
    runtime = call.environment.get("XDG_RUNTIME_DIR", "").rpartition("/")[2]
    return accounts.by_uid(call.machine, int(runtime)) if runtime.isdecimal() else None


def _act(call: Call, account: Account, verb: str, unit: str) -> Answer:
    there = call.machine.path(f"{account.home}/.config/systemd/user/{unit}").exists()
    known = user_manager.user_units(call.machine, account)
    entry = known.setdefault(unit, {"active": False, "enabled": False})
    if unit == rootless.UNIT:
        entry["active"] = rootless.engine(call.machine, account, call.faults).running
    if verb in {"is-active", "status"}:
        active = there and entry["active"]
        text = "active" if active else ("failed" if there and entry.get("failed") else "inactive")
        return Answer.out(text, 0 if active else _NOT_RUNNING)
    if verb == "is-enabled":
        if not there:
            return Answer.error(f"Failed to get unit file state for {unit}: No such file", 1)
        return Answer.out("enabled" if entry["enabled"] else "disabled", int(not entry["enabled"]))
    if verb == "show":
        return Answer.out(f"ActiveState={'active' if entry['active'] else 'inactive'}")
    if not there and verb != "reset-failed":
        text = f"Failed to {verb} {unit}: Unit {unit} not found."
        return Answer.error(text, 1 if verb in {"enable", "disable"} else _NOT_LOADED)
    if verb in {"enable", "disable"}:
        entry["enabled"] = verb == "enable"
        if not call.has("--now"):
            return Answer()
        verb = "start" if verb == "enable" else "stop"
    if verb == "reset-failed":
        entry["failed"] = False
        return Answer()
    return _change(call, account, verb, unit)


def _change(call: Call, account: Account, verb: str, unit: str) -> Answer:
    entry = user_manager.user_units(call.machine, account)[unit]
    if verb == "stop":
        if unit == rootless.UNIT:
            rootless.stop(call.machine, account)
        entry["active"] = False
        return Answer()
    if (verb == "start" and entry["active"]) or (verb == "try-restart" and not entry["active"]):
        return Answer()
    problem = None
    if unit == rootless.UNIT:
        rootless.stop(call.machine, account)
        problem = rootless.start(call.machine, account, call.faults)
    entry["active"], entry["failed"] = problem is None, problem is not None
    if problem is None:
        return Answer()
    user_manager.log(call.machine, account, unit, problem)
    return Answer.error(
        f"Job for {unit} failed because the control process exited with error code.\n"
        f'See "systemctl --user status {unit}" and "journalctl --user -xeu {unit}" for details.',
        1,
    )


def _manager(call: Call) -> Answer:
    words = [word for word in call.arguments if not word.startswith("-")]
    verb, names = words[0], words[1:]
    found = _MANAGER.fullmatch(names[0]) if len(names) == 1 else None
    account = accounts.by_uid(call.machine, int(found[1])) if found else None
    if account is None:
        return Answer.error(
            f"Failed to {verb} {' '.join(names)}: one unit of an account, please", 1
        )
    up = accounts.is_up(call.machine, account)
    if verb == "is-active":
        return Answer.out("active" if up else "inactive", 0 if up else _NOT_RUNNING)
    if verb not in {"start", "stop", "restart"}:
        return Answer.error(f"Unknown command verb '{verb}'.", 1)
    if not call.is_root:
        return Answer.error(f"Failed to {verb} {names[0]}: Interactive authentication required.", 1)
    if up and verb in {"stop", "restart"}:
        user_manager.stop(call.machine, account)
    if verb in {"start", "restart"} and not accounts.is_up(call.machine, account):
        user_manager.start(call.machine, account, call.faults)
        user_manager.start_enabled(call.machine, account, call.faults)
    return Answer()
