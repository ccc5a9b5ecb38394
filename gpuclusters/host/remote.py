"""Files, systemd units and PCI functions of a host over SSH."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.host.model import LiveFile, PciFunction, UnitState, sha256_of
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost

_ABSENT = 3
START_SECONDS = 330.0
"""A unit may take as long as its own TimeoutStartSec, five minutes for those that are ours."""


class SshNodeFiles:
    """Files of one host; each call is one round trip."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    def read(self, path: str) -> LiveFile | None:
        """The file, or None.

        Raises:
            AdapterError: not reached, not a regular file, or changed while it was read.
        """
        tried = f"read {path}"
        done = run_script(
            self._host, "host/read_file", [path], tried=tried, repeatable=True, accept=(0, _ABSENT)
        )
        if done.status == _ABSENT:
            return None
        head, _, content = done.stdout.partition(b"\n")
        fields = head.decode(errors="replace").split()
        if len(fields) != 3 or fields[2] != sha256_of(content):
            raise InvalidAnswerError(
                self._host.target, tried, "the file changed while it was read", "run again"
            )
        mode, owner, digest = fields
        return LiveFile(content, mode.zfill(4), owner, digest)

    def read_folders(self, folders: Sequence[str], suffixes: Sequence[str]) -> Mapping[str, bytes]:
        """Path to content of the files with these suffixes, top level only.

        Raises:
            AdapterError: not reached or not readable.
        """
        tried = f"read the files in {' and '.join(folders)}"
        done = run_script(
            self._host,
            "host/read_folders",
            [" ".join(suffixes), *folders],
            tried=tried,
            repeatable=True,
        )
        files: dict[str, bytes] = {}
        for block in done.stdout.decode(errors="replace").split("\n\n"):
            path, _, encoded = block.strip().partition("\n")
            if path:
                files[path] = base64.b64decode(encoded)
        return files

    def write(self, path: str, content: bytes, *, mode: str, owner: str) -> str:
        """Write atomically; answers the sha256 of what is there now.

        Raises:
            AdapterError: not reached, no space, not allowed; the old file is then untouched.
        """
        tried = f"write {path}"
        done = run_script(
            self._host, "host/write_file", [path, mode, owner], tried=tried, content=content
        )
        digest = done.stdout.decode(errors="replace").strip()
        if digest != sha256_of(content):
            raise InvalidAnswerError(
                self._host.target,
                tried,
                "the file has another content right after it was written",
                "find out who else writes it",
            )
        return digest

    def remove(self, path: str) -> None:
        """Remove; absent is fine.

        Raises:
            AdapterError: not reached or not allowed.
        """
        run_script(self._host, "host/remove_file", [path], tried=f"remove {path}")


class SshHostUnits:
    """Units of one host; each call is one round trip."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    def state(self, unit: str) -> UnitState:
        """What systemd says now."""
        tried = f"look at {unit}"
        done = run_script(self._host, "host/unit", ["state", unit], tried=tried, repeatable=True)
        words = done.stdout.decode(errors="replace").split()
        if len(words) < 2:
            raise InvalidAnswerError(
                self._host.target,
                tried,
                "systemctl gave no answer",
                "look whether systemd runs there",
            )
        return UnitState(words[0], words[1], stale=words[2:3] == ["yes"])

    def apply(self, unit: str, *, enabled: bool, active: bool, restart: bool) -> None:
        """Read unit files again, then enable and start or stop it."""
        wishes = ["enabled" if enabled else "disabled", "active" if active else "inactive"]
        run_script(
            self._host,
            "host/unit",
            ["apply", unit, *wishes, "restart" if restart else "keep"],
            tried=f"start {unit}" if active else f"set up {unit}",
            timeout_seconds=START_SECONDS,
        )

    def remove(self, unit: str) -> None:
        """Disable and stop it; absent is fine."""
        run_script(
            self._host,
            "host/unit",
            ["remove", unit],
            tried=f"stop {unit}",
            timeout_seconds=START_SECONDS,
        )


class SshPciDevices:
    """`PciDevices` of one host; one round trip for all addresses.

    Args:
        host: where.
        with_users: also ask which processes hold the devices; takes a walk through /proc there.
    """

    def __init__(self, host: SshHost, *, with_users: bool) -> None:
        self._host = host
        self._want = "users" if with_users else "none"

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        """What the kernel says now about each address.

        Raises:
            AdapterError: not reached, or open files cannot be asked for.
        """
        tried = f"look at the PCI functions {', '.join(addresses)}"
        done = run_script(
            self._host,
            "host/inspect_pci",
            [self._want, *addresses],
            tried=tried,
            after=("vfio/vfio_users",),
            repeatable=True,
        )
        lines = done.stdout.decode(errors="replace").splitlines()
        found = {f.address: f for f in map(_parse, lines) if f is not None}
        if set(found) != set(addresses):
            raise InvalidAnswerError(
                self._host.target, tried, "not every function was answered for", "run again"
            )
        return found


def _parse(line: str) -> PciFunction | None:
    fields = line.split()
    if len(fields) != 5:
        return None
    address, group, driver, users, own = (None if f == "-" else f for f in fields)
    if address is None:
        return None
    if group == "absent":
        return PciFunction(address, present=False)
    pids = tuple(int(u) for u in users.split(",") if u.isdigit()) if users else ()
    return PciFunction(
        address,
        present=True,
        iommu_group=group,
        driver=driver,
        users=pids,
        vfio_device=own,
    )
