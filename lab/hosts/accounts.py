"""Accounts of a simulated host and their subordinate ids: passwd(5), subuid(5), subgid(5).

Sources: getsubids(1) and usermod(8) of shadow, useradd(8) with `SUB_UID_MIN=100000` and `SUB_UID_COUNT=65536`
of Ubuntu's /etc/login.defs.
"""

import os
from dataclasses import dataclass
from typing import Any

from lab.hosts.machine import Machine

PASSWD, GROUP = "/etc/passwd", "/etc/group"
SUBUID, SUBGID = "/etc/subuid", "/etc/subgid"
_FIRST_SUBORDINATE, _COUNT = 100_000, 65_536
_FIRST, _LAST = 1000, 60_000
MANAGERS = "user-managers"
"""What a machine remembers of the systemd of its accounts."""


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    home: str

    @property
    def runtime(self) -> str:
        return f"/run/user/{self.uid}"


def accounts(machine: Machine) -> dict[str, Account]:
    found: dict[str, Account] = {}
    for line in (machine.read_text(PASSWD) or "").splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[2].isdecimal():
            found[fields[0]] = Account(fields[0], int(fields[2]), fields[5])
    return found


def ordinary(machine: Machine) -> dict[str, Account]:
    return {n: one for n, one in accounts(machine).items() if _FIRST <= one.uid < _LAST}


def by_uid(machine: Machine, uid: int) -> Account | None:
    return next((one for one in accounts(machine).values() if one.uid == uid), None)


def ranges(machine: Machine, path: str) -> list[tuple[str, int, int]]:
    """Owner, start and count of every line of subuid(5) or subgid(5)."""
    found: list[tuple[str, int, int]] = []
    for line in (machine.read_text(path) or "").splitlines():
        owner, _, rest = line.partition(":")
        start, _, count = rest.partition(":")
        if start.isdecimal() and count.isdecimal():
            found.append((owner, int(start), int(count)))
    return found


def add_range(machine: Machine, path: str, owner: str, start: int, count: int) -> None:
    file = machine.path(path)
    text = file.read_text() if file.exists() else ""
    file.write_text(f"{text}{owner}:{start}:{count}\n")


def add_system(machine: Machine, name: str, group: str) -> None:
    """A new account of a service: no home, no subordinate ids, in a group that is there."""
    taken = {one.uid for one in accounts(machine).values()}
    uid = next(number for number in range(_FIRST - 1, 100, -1) if number not in taken)
    lines = [line.split(":") for line in (machine.read_text(GROUP) or "").splitlines()]
    gid = next((fields[2] for fields in lines if fields[0] == group), str(uid))
    file = machine.path(PASSWD)
    file.write_text(f"{file.read_text()}{name}:x:{uid}:{gid}::/:/usr/sbin/nologin\n")


def add(machine: Machine, name: str, *, many_users: bool) -> Account:
    """A new account with a home and subordinate ids."""
    taken = {one.uid for one in accounts(machine).values()}
    uid = next(number for number in range(_FIRST, _LAST) if number not in taken)
    account = Account(name, uid, f"/home/{name}")
    for path, line in (
        (PASSWD, f"{name}:x:{uid}:{uid}::{account.home}:/bin/bash\n"),
        (GROUP, f"{name}:x:{uid}:\n"),
    ):
        file = machine.path(path)
        file.write_text(file.read_text() + line)
    home = machine.path(account.home)
    home.mkdir(mode=0o750, exist_ok=True)
    if many_users:
        os.chown(home, uid, uid)
    for path in (SUBUID, SUBGID):
        ends = [start + count for _, start, count in ranges(machine, path)]
        add_range(machine, path, name, max([_FIRST_SUBORDINATE, *ends]), _COUNT)
    return account


def is_up(machine: Machine, account: Account) -> bool:
    known: dict[str, Any] = machine.state.get(MANAGERS, {})
    return bool(known.get(account.name, {}).get("up"))


def controllers(machine: Machine, account: Account) -> tuple[str, ...]:
    """The controllers that the running one was given."""
    text = machine.read_text(controllers_file(account)) or ""
    return tuple(text.split())


def controllers_file(account: Account) -> str:
    return (
        f"/sys/fs/cgroup/user.slice/user-{account.uid}.slice/user@{account.uid}.service/"
        "cgroup.controllers"
    )
