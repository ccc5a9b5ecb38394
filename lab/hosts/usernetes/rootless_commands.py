"""Stand-ins for `dockerd-rootless-setuptool.sh` and `rootlesskit`.

After moby's `contrib/dockerd-rootless-setuptool.sh` (its refusals, its unit file, exit status 1) and
rootlesskit's README (`rootlesskit true` tells whether namespaces can be made).
"""

from __future__ import annotations

import os

from lab.hosts import accounts
from lab.hosts.accounts import Account
from lab.hosts.call import Answer, Call
from lab.hosts.systemd import user_manager
from lab.hosts.usernetes import rootless

_UNIT_TEXT = """[Unit]
Description=Docker Application Container Engine (Rootless)
Documentation=https://docs.docker.com/go/rootless/
Requires=dbus.socket

[Service]
ExecStart=/usr/bin/dockerd-rootless.sh
ExecReload=/bin/kill -s HUP $MAINPID
Restart=always
LimitNOFILE=infinity
LimitNPROC=infinity
Delegate=yes
Type=notify
NotifyAccess=all
KillMode=mixed

[Install]
WantedBy=default.target
"""


def setup(call: Call) -> Answer:
    """`dockerd-rootless-setuptool.sh check|install|uninstall`."""
    words = [word for word in call.arguments if not word.startswith("-")]
    if words not in (["check"], ["install"], ["uninstall"]):
        return Answer.error("Usage: dockerd-rootless-setuptool.sh [OPTIONS] COMMAND", 1)
    account = _account(call)
    if account is None:
        return Answer.error("[ERROR] Refusing to install rootless Docker as the root user", 1)
    unit = f"{account.home}/.config/systemd/user/{rootless.UNIT}"
    if words == ["uninstall"]:
        return _uninstall(call, account, unit)
    refusal = _refusal(call, account)
    if refusal is not None:
        return Answer.error(f"[ERROR] {refusal}", 1)
    if words == ["check"]:
        return Answer.out("[INFO] Requirements are satisfied")
    file = call.machine.path(unit)
    if not file.exists():
        _write(call, account, unit, _UNIT_TEXT)
    problem = None
    if not rootless.engine(call.machine, account, call.faults).running:
        problem = rootless.start(call.machine, account, call.faults)
    known = user_manager.user_units(call.machine, account)
    known[rootless.UNIT] = {"active": problem is None, "enabled": True}
    if problem is not None:
        user_manager.log(call.machine, account, rootless.UNIT, problem)
        return Answer.error(
            f"Job for {rootless.UNIT} failed because the control process exited with error code.", 1
        )
    return Answer.out(
        f"[INFO] Installed {rootless.UNIT} successfully.\n"
        "[INFO] To run docker.service on system startup, run: `sudo loginctl enable-linger "
        f"{account.name}`"
    )


def _refusal(call: Call, account: Account) -> str | None:
    machine = call.machine
    if not machine.path(account.runtime).is_dir():
        return (
            "Aborting because systemd was detected but XDG_RUNTIME_DIR is not set, does not exist, or is "
            "not writable"
        )
    if not user_manager.reachable(machine, account, call.faults):
        return "systemd not detected, dockerd-rootless.sh needs to be started manually"
    if not machine.has_package("uidmap"):
        return "Missing system requirements. Run the following commands to install the requirements"
    if not rootless.has_ids(machine, account, call.faults):
        return f"Missing system requirements: add subuid entry for {account.name}"
    return None


def _uninstall(call: Call, account: Account, unit: str) -> Answer:
    rootless.stop(call.machine, account)
    user_manager.user_units(call.machine, account).pop(rootless.UNIT, None)
    call.machine.path(unit).unlink(missing_ok=True)
    return Answer.out(f"[INFO] Uninstalled {rootless.UNIT}")


def kit(call: Call) -> Answer:
    """`rootlesskit true`, and `rootlesskit rm -rf FOLDER` of what only its namespace may remove."""
    account = _account(call)
    if account is None:
        return Answer.error("rootlesskit: run it as an ordinary account", 1)
    problem = rootless.namespace_problem(call.machine, account, call.faults)
    if problem is not None:
        return Answer.error(problem, 1)
    match call.arguments:
        case ("true",):
            return Answer()
        case ("rm", "-rf", path) if path.startswith(f"{account.home}/"):
            rootless.state(call.machine, account)["containers"] = {}
            call.machine.note("rootless", action="remove data", account=account.name)
            return Answer()
    return Answer.error("rootlesskit: `true` and `rm -rf FOLDER` on a simulated host", 1)


def _account(call: Call) -> Account | None:
    """Whoever calls; where a host has one user alone, whose runtime folder is named."""
    if call.uid != 0:
        return accounts.by_uid(call.machine, call.uid)
    if getattr(call.host, "many_users", True):
        return None
    runtime = call.environment.get("XDG_RUNTIME_DIR", "").rpartition("/")[2]
    return accounts.by_uid(call.machine, int(runtime)) if runtime.isdecimal() else None


def _write(call: Call, account: Account, path: str, text: str) -> None:
    file = call.machine.path(path)
    missing = [p for p in (file.parent, *file.parent.parents) if not p.exists()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if os.geteuid() == 0:
        for made in (*missing, file):
            os.chown(made, account.uid, account.uid)
