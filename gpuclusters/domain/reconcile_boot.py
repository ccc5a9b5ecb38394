"""What a host boots with: read, compare, act, reboot if that is allowed and nobody uses a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuclusters.core.converge import Reporter
from gpuclusters.domain import host_boot, huge_pages, kernel_command_line
from gpuclusters.domain.host_boot import (
    BootMethod,
    BootPlan,
    BootState,
    HostBootInputs,
    RebootPolicy,
)
from gpuclusters.domain.host_file import sha256_of
from gpuclusters.domain.ports import NodeFiles
from gpuclusters.domain.refusals import RefusalError

MODE, OWNER = "0644", "root:root"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as `BootHost.state` saw it; `digest` is None when it is not there."""

    digest: str | None
    mode: str = ""
    owner: str = ""
    ours: bool = False


@dataclass(frozen=True, slots=True)
class LoaderChange:
    """What one call brings into effect for the next boot."""

    method: BootMethod
    loader: bool
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    initramfs: str | None = None
    """Digest to note after a build; None: no build."""
    sysctl: str | None = None
    reload_units: bool = False


class BootHost(Protocol):
    """The boot of one host."""

    @property
    def place(self) -> str:
        """The host as errors name it."""

    def state(self, paths: Sequence[str]) -> tuple[BootState, Mapping[str, FoundFile]]:
        """What it boots with, and these files."""

    def update(self, change: LoaderChange) -> None:
        """Make the boot loader, the initramfs and the running system follow the files."""

    def reboot(self, boot_id: str, timeout_seconds: int) -> None:
        """Reboot unless a device is in use; back when the host answers with another boot id."""


def ensure(
    inputs: HostBootInputs,
    host: BootHost,
    files: NodeFiles,
    reporter: Reporter,
    *,
    before: Sequence[str],
) -> BootState:
    """Bring a host to its inputs.

    Args:
        inputs: arguments and files.
        host: its boot.
        files: its files.
        reporter: hears of drift that is put back and of a reboot.
        before: files that this resource wrote before.

    Raises:
        RefusalError: arguments of others contradict ours, a file is not ours, a reboot is needed and not
            allowed or would end a virtual machine, or the kernel runs without an argument nevertheless.
    """
    paths = sorted({*inputs.files, *before})
    state, found = host.state(paths)
    _refuse(inputs, host.place, state, found, before)
    todo = host_boot.plan(inputs, state)
    if todo.reboot_for and inputs.reboot is RebootPolicy.ALLOW:
        _refuse_users(host.place, state, todo)
    written = _write_files(inputs, found, files, reporter, before)
    _apply(inputs, state, todo, written, host, files)
    if not todo.reboot_for:
        return _proven(inputs, host.place, host.state(())[0])
    missing = " ".join(todo.reboot_for)
    if inputs.reboot is RebootPolicy.REFUSE:
        raise RefusalError(
            host.place,
            f"the running kernel lacks {missing}; it is set for the next boot, and reboots are refused",
            "reboot it when nothing runs there (`sudo systemctl reboot`), then run again; or set "
            "preparation.reboot: allow",
        )
    reporter.note(f"{host.place}: rebooting: the running kernel lacks {missing}")
    host.reboot(state.boot_id, inputs.reboot_timeout_seconds)
    return _proven(inputs, host.place, host.state(())[0])


def drift(
    inputs: HostBootInputs, state: BootState, found: Mapping[str, FoundFile]
) -> tuple[str, ...]:
    """In words, how a host differs from what was made."""
    said: list[str] = []
    for path, content in sorted(inputs.files.items()):
        if found[path].digest is None:
            said.append(f"{path} is gone")
        elif not _same(found[path], content):
            said.append(f"{path} was changed")
    todo = host_boot.plan(inputs, state)
    if todo.write_arguments or todo.update_loader:
        said.append("the next boot would not have all arguments")
    if state.sysctl_behind:
        said.append(f"the kernel has other values than {host_boot.SYSCTL_FILE} says")
    if state.units_behind:
        said.append("systemd has not read the drop-ins of units")
    if todo.update_initramfs:
        said.append("the initramfs was not built with these files")
    if todo.reboot_for:
        said.append(f"the running kernel lacks {' '.join(todo.reboot_for)}")
    return tuple(said)


def remove(inputs: HostBootInputs, host: BootHost, files: NodeFiles, reporter: Reporter) -> None:
    """Take our arguments and files away; they are in effect until the next boot. Absent is fine."""
    state, found = host.state(sorted(inputs.files))
    for path in sorted(inputs.files):
        if found[path].digest is not None and found[path].ours:
            files.remove(path)
    if state.method is None:
        return
    added = kernel_command_line.additions(state.others, inputs.kernel_arguments)
    present = set(kernel_command_line.split(state.next_boot)) & {*state.ours, *added}
    if state.method is BootMethod.GRUB_FOLDER:
        files.remove(host_boot.GRUB_FILE)
    if state.ours or present or state.initramfs:
        host.update(
            LoaderChange(
                method=state.method,
                loader=bool(state.ours or present),
                removed=state.ours,
                initramfs="" if state.initramfs else None,
                reload_units=True,
            )
        )
    files.remove(host_boot.ARGUMENTS_FILE)
    files.remove(host_boot.INITRAMFS_STAMP)
    if present:
        reporter.note(
            f"{host.place}: kernel arguments are taken out; the next boot is without them"
        )


def _refuse(
    inputs: HostBootInputs,
    place: str,
    state: BootState,
    found: Mapping[str, FoundFile],
    before: Sequence[str],
) -> None:
    """All that forbids to begin, at once."""
    said: list[str] = []
    if state.method is None:
        raise RefusalError(
            place,
            "its boot loader is neither GRUB with /etc/default/grub nor one that grubby manages",
            f"set these kernel arguments by hand: {' '.join(inputs.kernel_arguments)}",
        )
    said += [
        f"the boot configuration says {conflict.theirs}, which contradicts {conflict.ours}; take it out "
        "of /etc/default/grub, or out of preparation"
        for conflict in kernel_command_line.conflicts(state.others, inputs.kernel_arguments)
    ]
    if state.method is BootMethod.GRUBBY:
        add = kernel_command_line.additions(state.others, inputs.kernel_arguments)
        said += [
            f"{name} is on the command line with another value, which grubby would replace for good; "
            "take it out with `grubby --remove-args`"
            for name in kernel_command_line.shared_names(state.others, add)
        ]
    for path, content in sorted(inputs.files.items()):
        file = found[path]
        foreign = file.digest is not None and not file.ours and not _same(file, content)
        if foreign and path not in before:
            said.append(f"{path} is not ours; move it away, or make it equal")
    if said:
        raise RefusalError(place, "; ".join(said), "nothing was changed")


def _refuse_users(place: str, state: BootState, todo: BootPlan) -> None:
    if state.device_users is None:
        raise RefusalError(
            place,
            "it cannot be told whether a virtual machine uses a GPU: fuser is not installed",
            "install psmisc, then run again; nothing was changed",
        )
    if state.device_users:
        pids = ", ".join(map(str, state.device_users))
        raise RefusalError(
            place,
            f"needs a reboot for {' '.join(todo.reboot_for)}, but processes {pids} use passed-through "
            "devices",
            "drain the node, then run again; nothing was changed",
        )


def _write_files(
    inputs: HostBootInputs,
    found: Mapping[str, FoundFile],
    files: NodeFiles,
    reporter: Reporter,
    before: Sequence[str],
) -> frozenset[str]:
    """Write what differs and remove what is no longer asked for; answers what was touched."""
    touched: set[str] = set()
    for path, content in sorted(inputs.files.items()):
        if _same(found[path], content):
            continue
        if path in before and found[path].digest is not None:
            reporter.note(f"{files.place}: {path}: written again")
        files.write(path, content.encode(), mode=MODE, owner=OWNER)
        touched.add(path)
    for path in sorted(set(before) - set(inputs.files)):
        if found[path].digest is not None and found[path].ours:
            files.remove(path)
            touched.add(path)
    return frozenset(touched)


def _apply(
    inputs: HostBootInputs,
    state: BootState,
    todo: BootPlan,
    written: frozenset[str],
    host: BootHost,
    files: NodeFiles,
) -> None:
    """Arguments, boot loader, initramfs, limits."""
    method = state.method
    assert method is not None  # noqa: S101 (refused before)
    stale = tuple(argument for argument in state.ours if argument not in todo.add)
    note = host_boot.ARGUMENTS_FILE
    if todo.write_arguments and method is BootMethod.GRUB_FOLDER:
        text = host_boot.render_grub_file(todo.add)
        files.write(host_boot.GRUB_FILE, text.encode(), mode=MODE, owner=OWNER)
    elif todo.write_arguments:
        # Both, until grubby has done it: whatever is on the line by us can be found again.
        text = host_boot.render_arguments_file([*todo.add, *stale])
        files.write(note, text.encode(), mode=MODE, owner=OWNER)
    sysctl = host_boot.SYSCTL_FILE
    change = LoaderChange(
        method=method,
        loader=todo.update_loader,
        removed=stale,
        added=todo.add,
        initramfs=inputs.initramfs_digest if todo.update_initramfs else None,
        sysctl=(
            sysctl
            if sysctl in inputs.files and (sysctl in written or state.sysctl_behind)
            else None
        ),
        reload_units=state.units_behind or any(p.startswith("/etc/systemd/") for p in written),
    )
    if change.loader or change.initramfs is not None or change.sysctl or change.reload_units:
        host.update(change)
    if stale and method is BootMethod.GRUBBY:
        exact = host_boot.render_arguments_file(todo.add)
        files.write(note, exact.encode(), mode=MODE, owner=OWNER)


def _proven(inputs: HostBootInputs, place: str, state: BootState) -> BootState:
    """The state, if the kernel really runs with all of it."""
    missing = kernel_command_line.lacking(state.running, inputs.kernel_arguments)
    if missing:
        raise RefusalError(
            place,
            f"booted without {' '.join(missing)} (its command line: {state.running})",
            "look which entry the boot loader starts (`grub-editenv list`, /boot/grub/grub.cfg), then run "
            "again",
        )
    short = huge_pages.missing(inputs.pages, state.huge_pages_1g)
    if short:
        lacks = ", ".join(f"{count} on NUMA node {node}" for node, count in short.items())
        raise RefusalError(
            place,
            f"the kernel reserved fewer huge pages of 1 GiB than asked for, {lacks} are missing",
            "lower hugepages-gib-per-numa-node, or look for memory that the machine lacks",
        )
    return state


def _same(file: FoundFile, content: str) -> bool:
    digest = sha256_of(content.encode())
    return (file.digest, file.mode, file.owner) == (digest, MODE, OWNER)
