"""Files, systemd units and PCI functions of a host over SSH; each call is one round trip."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.host.model import LiveFile, PciFunction, UnitState, sha256_of
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import Completed, SshHost

_ABSENT = 3
START_SECONDS = 330.0
"""A unit may take as long as its own TimeoutStartSec, five minutes for those that are ours."""


class _OnHost:
    def __init__(self, host: SshHost) -> None:
        self._host = host

    def _run(self, script: str, arguments: Sequence[str], tried: str, **how: Any) -> Completed:
        return run_script(self._host, f"host/{script}", arguments, tried=tried, **how)

    def _invalid(self, tried: str, problem: str, remedy: str) -> InvalidAnswerError:
        return InvalidAnswerError(self._host.target, tried, problem, remedy)


class SshNodeFiles(_OnHost):
    def read(self, path: str) -> LiveFile | None:
        """The file, or None."""
        tried = f"read {path}"
        done = self._run("read_file", [path], tried, repeatable=True, accept=(0, _ABSENT))
        if done.status == _ABSENT:
            return None
        head, _, content = done.stdout.partition(b"\n")
        fields = head.decode(errors="replace").split()
        if len(fields) != 3 or fields[2] != sha256_of(content):
            raise self._invalid(tried, "the file changed while it was read", "run again")
        mode, owner, digest = fields
        return LiveFile(content, mode.zfill(4), owner, digest)

    def read_folders(self, folders: Sequence[str], suffixes: Sequence[str]) -> Mapping[str, bytes]:
        """Path to content of the files with these suffixes, top level only."""
        tried = f"read the files in {' and '.join(folders)}"
        done = self._run("read_folders", [" ".join(suffixes), *folders], tried, repeatable=True)
        blocks = (block.strip().partition("\n") for block in done.text.split("\n\n"))
        return {path: base64.b64decode(encoded) for path, _, encoded in blocks if path}

    def write(self, path: str, content: bytes, *, mode: str, owner: str) -> str:
        """Write atomically; answers the sha256 of what is there now."""
        tried = f"write {path}"
        digest = self._run("write_file", [path, mode, owner], tried, content=content).text.strip()
        if digest != sha256_of(content):
            problem = "the file has another content right after it was written"
            raise self._invalid(tried, problem, "find out who else writes it")
        return digest

    def remove(self, path: str) -> None:
        self._run("remove_file", [path], f"remove {path}")


class SshHostUnits(_OnHost):
    def state(self, unit: str) -> UnitState:
        tried = f"look at {unit}"
        words = self._run("unit", ["state", unit], tried, repeatable=True).text.split()
        if len(words) < 2:
            problem = "systemctl gave no answer"
            raise self._invalid(tried, problem, "look whether systemd runs there")
        return UnitState(words[0], words[1], stale=words[2:3] == ["yes"])

    def apply(self, unit: str, *, enabled: bool, active: bool, restart: bool) -> None:
        """Read unit files again, then enable and start or stop it."""
        wishes = ["enabled" if enabled else "disabled", "active" if active else "inactive"]
        arguments = ["apply", unit, *wishes, "restart" if restart else "keep"]
        tried = f"start {unit}" if active else f"set up {unit}"
        self._run("unit", arguments, tried, timeout_seconds=START_SECONDS)

    def remove(self, unit: str) -> None:
        self._run("unit", ["remove", unit], f"stop {unit}", timeout_seconds=START_SECONDS)


class SshPciDevices(_OnHost):
    """PCI functions of one host; `with_users` takes a walk through /proc there."""

    def __init__(self, host: SshHost, *, with_users: bool) -> None:
        super().__init__(host)
        self._want = "users" if with_users else "none"

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        """What the kernel says now about each address."""
        tried = f"look at the PCI functions {', '.join(addresses)}"
        what, after = [self._want, *addresses], ("vfio/vfio_users",)
        done = self._run("inspect_pci", what, tried, after=after, repeatable=True)
        lines = [line.split() for line in done.text.splitlines()]
        found = {words[0]: _function(*words) for words in lines if len(words) == 5}
        if set(found) != set(addresses):
            raise self._invalid(tried, "not every function was answered for", "run again")
        return found


def _function(address: str, group: str, driver: str, users: str, own: str) -> PciFunction:
    if group == "absent":
        return PciFunction(address, present=False)
    known = {"iommu_group": group, "driver": driver, "vfio_device": own}
    return PciFunction(
        address,
        present=True,
        users=tuple(int(user) for user in users.split(",") if user.isdigit()),
        **{name: word for name, word in known.items() if word != "-"},
    )
