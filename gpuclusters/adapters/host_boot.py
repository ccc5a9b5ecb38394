"""The boot of a host over SSH: its state, its boot loader, a reboot that is waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from gpuclusters.adapters.errors import (
    AdapterError,
    BusyError,
    CommandFailedError,
    CommandTimeoutError,
    DeniedError,
    HostKeyMismatchError,
    InvalidAnswerError,
    UnreachableError,
)
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.core.converge import Clock
from gpuclusters.domain.host_boot import (
    ARGUMENTS_FILE,
    GRUB_FILE,
    INITRAMFS_STAMP,
    BootMethod,
    BootState,
)
from gpuclusters.domain.kernel_command_line import split
from gpuclusters.domain.reconcile_boot import FoundFile, LoaderChange

# An initramfs for every installed kernel, on a machine with slow disks.
UPDATE_SECONDS = 900.0
POLL_SECONDS = 0.5
_IN_USE, _CANNOT_TELL = 6, 7
_FILE_FIELDS = 5


class SshBootHost:
    """`BootHost` of one host."""

    def __init__(self, host: SshHost, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def state(self, paths: Sequence[str]) -> tuple[BootState, Mapping[str, FoundFile]]:
        """What it boots with, and these files."""
        tried = "look at what it boots with"
        done = run_script(
            self._host,
            "boot_state",
            [GRUB_FILE, ARGUMENTS_FILE, INITRAMFS_STAMP, *paths],
            tried=tried,
            repeatable=True,
        )
        said: dict[str, str] = {}
        pages: dict[int, int] = {}
        files: dict[str, FoundFile] = {}
        for line in done.stdout.decode(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            if word == "pages":
                node, count = rest.split()
                pages[int(node)] = int(count)
            elif word == "file":
                fields = rest.split(" ", _FILE_FIELDS - 1)
                files[fields[-1]] = _file(fields)
            else:
                said[word] = rest.strip()
        if "boot_id" not in said or set(files) != set(paths):
            raise InvalidAnswerError(self.place, tried, "the answer is not whole", "run again")
        return _state(said, pages), files

    def update(self, change: LoaderChange) -> None:
        """Make the boot loader, the initramfs and the running system follow the files."""
        run_script(
            self._host,
            "boot_update",
            [
                change.method,
                "yes" if change.loader else "no",
                "no" if change.initramfs is None else change.initramfs,
                INITRAMFS_STAMP,
                change.sysctl or "no",
                "yes" if change.reload_units else "no",
                " ".join(change.removed),
                " ".join(change.added),
            ],
            tried="set what it boots with",
            timeout_seconds=UPDATE_SECONDS,
        )

    def reboot(self, boot_id: str, timeout_seconds: int) -> None:
        """Reboot unless a device is in use; back when the host answers with another boot id."""
        tried = "reboot"
        with contextlib.suppress(UnreachableError, CommandTimeoutError):
            # The connection breaks, sooner or later than the answer comes; what counts is the boot id.
            done = run_script(
                self._host, "reboot", [], tried=tried, accept=(0, _IN_USE, _CANNOT_TELL)
            )
            if done.status:
                raise BusyError(
                    self.place,
                    tried,
                    done.stderr.strip() or "fuser is not installed",
                    "end the virtual machines there, then run again",
                )
        deadline = self._clock.now() + timeout_seconds
        while True:
            # The last look begins after the deadline: we may have stood still while the host did not.
            is_late = self._clock.now() >= deadline
            now, last = self._boot_id()
            if now not in {None, boot_id}:
                return
            if is_late:
                break
            self._clock.sleep(POLL_SECONDS)
        if last is not None:
            raise UnreachableError(
                self.place,
                tried,
                f"it did not come back within {timeout_seconds} s ({last.problem})",
                "look at its console through the BMC, and run again when it is up",
            )
        raise CommandFailedError(
            self.place,
            tried,
            f"it still runs the same boot after {timeout_seconds} s",
            "look on the host what keeps it from going down (`systemctl list-jobs`), then run again",
        )

    def _boot_id(self) -> tuple[str | None, AdapterError | None]:
        tried = "see whether it is back"
        try:
            done = self._host.run(["cat", "/proc/sys/kernel/random/boot_id"], tried=tried)
        except HostKeyMismatchError:
            raise
        # Denied: until a machine is up, only root may log in (pam_nologin).
        except (UnreachableError, CommandTimeoutError, DeniedError) as error:
            return None, error
        return done.stdout.decode(errors="replace").strip() or None, None


def _state(said: Mapping[str, str], pages: Mapping[int, int]) -> BootState:
    method = None if said["method"] == "none" else BootMethod(said["method"])
    ours = split(said.get("ours", ""))
    following = said.get("next", "")
    others = said.get("others", "")
    if method is BootMethod.GRUBBY:
        others = " ".join(word for word in split(following) if word not in ours)
    users = said.get("users", "")
    return BootState(
        boot_id=said["boot_id"],
        running=said["running"],
        method=method,
        others=others,
        ours=ours,
        next_boot=following,
        initramfs=said.get("initramfs", ""),
        loader_behind="behind" in said,
        sysctl_behind="sysctl" in said,
        units_behind="units" in said,
        huge_pages_1g=pages,
        device_users=None
        if users == "unknown"
        else tuple(sorted({int(word) for word in users.split() if word.isdecimal()})),
    )


def _file(fields: Sequence[str]) -> FoundFile:
    digest, mode, owner, marked, _ = fields
    if digest == "-":
        return FoundFile(None)
    return FoundFile(digest, mode.zfill(4), owner, ours=marked == "ours")
