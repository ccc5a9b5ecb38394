"""Stand-ins for `dockerd-rootless-setuptool.sh` and `rootlesskit`.

After moby's `contrib/dockerd-rootless-setuptool.sh` (its refusals, its unit file, exit status 1) and
rootlesskit's README (`rootlesskit true` tells whether namespaces can be made).
"""

import os

from lab.hosts import accounts
from lab.hosts.accounts import Account
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.machine import FILES
from lab.hosts.program import program
from lab.hosts.systemd import user_manager
from lab.hosts.usernetes import rootless


@program("dockerd-rootless-setuptool.sh", on="ubuntu", of="docker-ce-rootless-extras")
def setup(call: Call) -> Answer:
    """`dockerd-rootless-setuptool.sh install|uninstall`."""
    if call.words not in (["install"], ["uninstall"]):
        raise RefusedError("Usage: dockerd-rootless-setuptool.sh [OPTIONS] COMMAND")
    account = _account(call)
    if account is None:
        raise RefusedError("[ERROR] Refusing to install rootless Docker as the root user")
    unit = f"{account.home}/.config/systemd/user/{rootless.UNIT}"
    if call.verb == "uninstall":
        rootless.stop(call.machine, account)
        user_manager.user_units(call.machine, account).pop(rootless.UNIT, None)
        call.machine.path(unit).unlink(missing_ok=True)
        return Answer.out(f"[INFO] Uninstalled {rootless.UNIT}")
    refusal = _refusal(call, account)
    if refusal is not None:
        raise RefusedError(f"[ERROR] {refusal}")
    if not call.machine.path(unit).exists():
        _write(call, account, unit, (FILES / "docker/docker.service").read_text())
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


@program("rootlesskit", on="ubuntu", of="docker-ce-rootless-extras", unknown=None)
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
    if call.has_many_users:
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
