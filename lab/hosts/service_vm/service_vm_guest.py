"""The inside of a service VM that runs on a simulated host: what somebody finds who logs in.

It is made at power-on from the seed that the VM was really given, and gone at power-off: the account that may
enter, with the keys that cloud-init was told, the files that it wrote, the fabric manager and its service.

Sources: cloud-init's module reference (users, ssh_keys, write_files); systemctl(1), is-active; NVIDIA Fabric
Manager User Guide for the log's place and `nv-fabricmanager --version`.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from lab.hosts.machine import Machine

_KEY = "guest"
_UNIT = "nvidia-fabricmanager.service"
_LOG = "/var/log/fabricmanager.log"


@dataclass(frozen=True, slots=True)
class Guest:
    """A VM that runs, as its SSH server and its shell show it."""

    address: str
    host_key: str
    """Type and key."""
    accounts: Mapping[str, Sequence[str]]
    """Keys that may enter, by account."""
    files: Mapping[str, str]
    version: str
    """Of the fabric manager that is installed; empty: none."""
    service: str
    """ActiveState of its unit."""

    def run(self, line: str) -> tuple[int, str, str]:
        """A command line in the account's shell: exit status, standard output and error."""
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
        lexer.whitespace_split = True
        status, out, errors = 0, "", ""
        command: list[str] = []
        for word in [*lexer, ";"]:
            if word != ";":
                command.append(word)
            elif command:
                status, said, complained = self._one(command)
                out, errors, command = out + said, errors + complained, []
        return status, out, errors

    def _one(self, words: list[str]) -> tuple[int, str, str]:
        if words[:2] == ["sudo", "-n"]:
            words = words[2:]
        match words:
            case ["nv-fabricmanager", "--version" | "-v"] if self.version:
                return 0, f"Fabric Manager version is : {self.version}\n", ""
            case ["systemctl", "is-active", unit]:
                state = self.service if unit in {_UNIT, _UNIT.removesuffix(".service")} else ""
                return (
                    (0 if state == "active" else 3 if state else 4),
                    f"{state or 'inactive'}\n",
                    "",
                )
            case ["cat", path]:
                return self._read(words[0], path, None)
            case ["tail", "-n", count, path] if count.isdigit():
                return self._read(words[0], path, int(count))
            case ["hostname" | "true"]:
                return 0, "fabric-manager\n" if words[0] == "hostname" else "", ""
        return 127, "", f"bash: line 1: {words[0]}: command not found\n"

    def _read(self, name: str, path: str, last: int | None) -> tuple[int, str, str]:
        if path not in self.files:
            verb = "cannot open '" + path + "' for reading" if name == "tail" else path
            return 1, "", f"{name}: {verb}: No such file or directory\n"
        lines = self.files[path].splitlines(keepends=True)
        return 0, "".join(lines if last is None else lines[-last:] if last else []), ""


def booted(
    machine: Machine, seed: Mapping[str, str], *, version: str, service: str, log: str
) -> None:
    vendor = yaml.safe_load(seed.get("vendor-data") or "{}") or {}
    user_data = yaml.safe_load(seed["user-data"])
    links = yaml.safe_load(seed.get("network-config") or "{}").get("ethernets", {})
    addresses = [a.partition("/")[0] for link in links.values() for a in link.get("addresses", [])]
    files = {f["path"]: f["content"] for f in user_data.get("write_files", [])}
    machine.state[_KEY] = {
        "address": addresses[0] if addresses else "",
        "host_key": vendor.get("ssh_keys", {}).get("ed25519_public", ""),
        "accounts": {
            user["name"]: user.get("ssh_authorized_keys", [])
            for user in vendor.get("users", [])
            if isinstance(user, dict)
        },
        "files": files | ({_LOG: log} if log else {}),
        "version": version,
        "service": service,
    }


def ended(machine: Machine) -> None:
    machine.state.pop(_KEY, None)


def found(machine: Machine) -> Guest | None:
    """The VM that runs on this host; None if none does that was given a seed."""
    kept: dict[str, Any] | None = machine.state.get(_KEY)
    return None if kept is None else Guest(**kept)
