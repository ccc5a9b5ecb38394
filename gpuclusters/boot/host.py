"""The boot of a host over SSH: its state, its boot loader, a reboot that is waited for."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from gpuclusters.boot import decide, model
from gpuclusters.boot.command_line import split
from gpuclusters.boot.decide import MODE, OWNER, BootMethod, BootState
from gpuclusters.boot.model import HostBootInputs, RebootPolicy
from gpuclusters.core.converge import Clock, Step
from gpuclusters.core.errors import (
    AdapterError,
    BusyError,
    CommandFailedError,
    CommandTimeoutError,
    DeniedError,
    InvalidAnswerError,
    UnreachableError,
)
from gpuclusters.core.finding import Finding, refused
from gpuclusters.host.capability import HostCapability
from gpuclusters.host.script import look, run_script
from gpuclusters.host.ssh import SshHost

# An initramfs for every installed kernel, on a machine with slow disks.
UPDATE_SECONDS = 900.0
POLL_SECONDS = 0.5
_IN_USE, _CANNOT_TELL = 6, 7
USERS = "vfio/vfio_users"


class BootCapability(HostCapability[HostBootInputs, BootState]):
    @property
    def steps(self) -> Mapping[str, Step[BootState]]:
        return {decide.WRITE: Step(self._write), decide.REBOOT: Step(self._reboot)}

    @property
    def _written(self) -> list[str]:
        return sorted(self._before.get("files") or ())

    def observe(self) -> BootState:
        return inspect(self._host, sorted({*self._inputs.files, *self._written}))

    def findings(self, live: BootState) -> Iterable[Finding]:
        return decide.findings(self._inputs, self._written, live)

    def differences(self, live: BootState) -> Iterable[Finding]:
        """Other files, and what would need another boot; what is not there is only added."""
        return [one for one in self.findings(live) if not one.missing]

    def outputs(self, live: BootState) -> Mapping[str, str]:
        return {"boot_id": live.boot_id, "kernel_command_line": live.running}

    def is_absent(self, live: BootState) -> bool:
        return not live.ours and all(file.digest is None for file in live.files.values())

    def remove(self) -> None:
        """Take our arguments and files away; they are in effect until the next boot."""
        live = self.observe()
        for path, file in sorted(live.files.items()):
            if file.ours:
                self._files.remove(path)
        if live.method is None:
            return
        added = {*live.ours, *decide.additions(self._inputs, live)}
        present = added & set(split(live.next_boot))
        if live.method is BootMethod.GRUB_FOLDER:
            self._files.remove(model.GRUB_FILE)
        if live.ours or present or live.initramfs:
            update(
                self._host,
                live.method,
                loader=bool(live.ours or present),
                removed=live.ours,
                initramfs="" if live.initramfs else None,
                reload_units=True,
            )
        self._files.remove(model.ARGUMENTS_FILE)
        self._files.remove(model.INITRAMFS_STAMP)
        if present:
            done = "kernel arguments are taken out; the next boot is without them"
            self._reporter.note(f"{self.target}: {done}")

    def _write(self, live: BootState, found: Sequence[Finding]) -> None:
        """Files, then boot loader, initramfs and what can take effect at once."""
        assert live.method is not None  # noqa: S101 (blocks)
        touched = {str(one.path[0]) for one in found if one.path}
        for path in sorted(touched):
            content = self._inputs.files.get(path)
            if content is None:
                self._files.remove(path)
            else:
                self._files.write(path, content.encode(), mode=MODE, owner=OWNER)
        loader = any(one.code == "boot.next-arguments" for one in found)
        add = decide.additions(self._inputs, live)
        stale = tuple(argument for argument in live.ours if argument not in add)
        if loader and live.method is BootMethod.GRUB_FOLDER:
            self._put(model.GRUB_FILE, model.render_grub_file(add))
        elif loader:
            # Both, until grubby has done it: whatever is on the line by us can be found again.
            self._put(model.ARGUMENTS_FILE, model.render_arguments_file([*add, *stale]))
        digest, written = (
            model.initramfs_digest(self._inputs.files),
            touched & {*self._inputs.files},
        )
        sysctl = model.SYSCTL_FILE if model.SYSCTL_FILE in written else ""
        update(
            self._host,
            live.method,
            loader=loader,
            removed=stale,
            added=add,
            initramfs=digest if live.initramfs != digest else None,
            sysctl=sysctl,
            reload_units=live.units_behind or any(p.startswith("/etc/systemd/") for p in touched),
        )
        if stale and live.method is BootMethod.GRUBBY:
            self._put(model.ARGUMENTS_FILE, model.render_arguments_file(add))

    def _put(self, path: str, text: str) -> None:
        self._files.write(path, text.encode(), mode=MODE, owner=OWNER)

    def _reboot(self, live: BootState, found: Sequence[Finding]) -> None:
        (one,) = found
        if self._inputs.reboot is RebootPolicy.REFUSE:
            raise refused(self.target, "boot.reboot-refused", why=one.problem)
        self._reporter.note(f"{self.target}: rebooting: {one.problem}")
        reboot(self._host, self._clock, live.boot_id, self._inputs.reboot_timeout_seconds)


def inspect(host: SshHost, paths: Sequence[str]) -> BootState:
    """What a host boots with, and these files, in one round trip."""
    tried = "look at what it boots with"
    arguments = [model.GRUB_FILE, model.ARGUMENTS_FILE, model.INITRAMFS_STAMP, *paths]
    state = look(host, BootState, "boot/boot_state", arguments, tried=tried, after=[USERS])
    if not state.boot_id or set(state.files) != set(paths):
        raise InvalidAnswerError(host.target, tried, "the answer is not whole", "run again")
    if state.method is not BootMethod.GRUBBY:
        return state
    others = [word for word in split(state.next_boot) if word not in state.ours]
    return state.model_copy(update={"others": " ".join(others)})


def update(
    host: SshHost,
    method: BootMethod,
    *,
    loader: bool = False,
    removed: Sequence[str] = (),
    added: Sequence[str] = (),
    initramfs: str | None = None,
    stamp: str = model.INITRAMFS_STAMP,
    sysctl: str = "",
    reload_units: bool = False,
) -> None:
    """Make the boot loader (told of what was `removed` and `added`), the initramfs and the system follow.

    `initramfs` is the digest to note in `stamp` after a build; None builds none. `sysctl` is a file to load.
    """
    said = {True: "yes", False: "no"}
    built = "no" if initramfs is None else initramfs
    first = [method, said[loader], built, stamp, sysctl or "no", said[reload_units]]
    arguments, tried = [*first, " ".join(removed), " ".join(added)], "set what it boots with"
    run_script(host, "boot/boot_update", arguments, tried=tried, timeout_seconds=UPDATE_SECONDS)


def reboot(host: SshHost, clock: Clock, boot_id: str, timeout_seconds: int) -> None:
    """Reboot unless a device is in use; back when the host answers with another boot id."""
    tried = "reboot"
    with contextlib.suppress(UnreachableError, CommandTimeoutError):
        # The connection breaks, sooner or later than the answer comes; what counts is the boot id.
        done = run_script(
            host,
            "boot/reboot",
            [],
            tried=tried,
            after=[USERS],
            accept=(0, _IN_USE, _CANNOT_TELL),
        )
        if done.status:
            problem = done.stderr.strip() or "fuser is not installed"
            remedy = "end the virtual machines there, then run again"
            raise BusyError(host.target, tried, problem, remedy)
    deadline = clock.now() + timeout_seconds
    while True:
        # The last look begins after the deadline: we may have stood still while the host did not.
        is_late = clock.now() >= deadline
        now, last = _boot_id(host)
        if now not in {None, boot_id}:
            return
        if is_late:
            break
        clock.sleep(POLL_SECONDS)
    kind: type[AdapterError] = UnreachableError
    if last is not None:
        problem = f"it did not come back within {timeout_seconds} s ({last.problem})"
        remedy = "look at its console through the BMC, and run again when it is up"
    else:
        kind, problem = CommandFailedError, f"it still runs the same boot after {timeout_seconds} s"
        remedy = (
            "look on the host what keeps it from going down (`systemctl list-jobs`), then run again"
        )
    raise kind(host.target, tried, problem, remedy)


def _boot_id(host: SshHost) -> tuple[str | None, AdapterError | None]:
    tried = "see whether it is back"
    try:
        done = host.run(["cat", "/proc/sys/kernel/random/boot_id"], tried=tried)
    # Denied: until a machine is up, only root may log in (pam_nologin).
    except (UnreachableError, CommandTimeoutError, DeniedError) as error:
        return None, error
    return done.text.strip() or None, None
