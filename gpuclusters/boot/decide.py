"""How a host's boot differs from its inputs, and what forbids to change it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator

from gpuclusters.boot import command_line
from gpuclusters.boot.model import SYSCTL_FILE, HostBootInputs, RebootPolicy, initramfs_digest
from gpuclusters.core.facts import Facts, Yes
from gpuclusters.core.finding import Finding, blocked, repair
from gpuclusters.host.model import sha256_of

MODE, OWNER = "0644", "root:root"
WRITE, REBOOT = "write", "reboot"
_repair = partial(
    repair, step=WRITE, remedy="see what else changes the boot of this host, then run again"
)


class BootMethod(StrEnum):
    """How a host's boot loader is told about arguments."""

    GRUB_FOLDER = "grub.d"
    """Debian and Ubuntu: a file in /etc/default/grub.d, then update-grub."""
    GRUBBY = "grubby"
    """The RHEL family: grubby, which changes every entry and what new kernels get."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file on the host; `digest` is None when it is not there."""

    digest: str | None
    mode: str = ""
    owner: str = ""
    ours: bool = False


def _found(line: Any) -> Any:
    """A file as it is printed: digest or `-`, mode, owner, whose."""
    if not isinstance(line, str):
        return line
    digest, *rest = line.split()
    if not rest:
        return FoundFile(None)
    mode, owner, marked = rest
    return FoundFile(digest, mode.zfill(4), owner, ours=marked == "ours")


def _users(said: Any) -> Any:
    if not isinstance(said, str):
        return said
    return None if said == "unknown" else tuple(sorted({int(word) for word in said.split()}))


class BootState(Facts):
    """What a host boots with, as found now: what `boot_state.sh` prints."""

    boot_id: str = ""
    running: str = ""
    method: Annotated[BootMethod | None, BeforeValidator(lambda m: None if m == "none" else m)] = (
        None
    )
    others: str = ""
    """What the next boot would get without our part."""
    ours: Annotated[
        tuple[str, ...], BeforeValidator(lambda lines: command_line.split(" ".join(lines)))
    ] = ()
    """What we have added to it."""
    next_boot: str = ""
    """The line that the boot loader will really pass: written by update-grub or grubby."""
    initramfs: str = ""
    """Digest of the files with which we last built the initramfs; empty: never."""
    loader_behind: Yes = False
    """Whether our part was written after the boot loader was told last."""
    sysctl_behind: Yes = False
    """Whether the kernel has other values than our file says."""
    units_behind: Yes = False
    """Whether systemd has not read our drop-ins yet."""
    huge_pages_1g: Mapping[int, int] = {}
    device_users: Annotated[tuple[int, ...] | None, BeforeValidator(_users)] = ()
    """Processes that hold a VFIO group or device open: virtual machines. None: nobody could tell."""
    files: Mapping[str, Annotated[FoundFile, BeforeValidator(_found)]] = {}


def findings(inputs: HostBootInputs, before: Sequence[str], state: BootState) -> Iterator[Finding]:
    """How a host differs from its inputs; `before` are files that were written before."""
    if state.method is None:
        yield blocked("boot.loader-unknown", arguments=" ".join(inputs.kernel_arguments))
        return
    conflicts = [*_conflicts(inputs, state)]
    yield from conflicts
    for path, content in sorted(inputs.files.items()):
        yield from _file(path, content, state.files[path], ours=path in before)
    for path in sorted(set(before) - set(inputs.files)):
        if state.files[path].ours:
            yield _repair("boot.file-left", path)
    if not conflicts and not follows(inputs, state):
        yield _repair("boot.next-arguments", missing=True)
    if SYSCTL_FILE in inputs.files and state.sysctl_behind:
        yield _repair("boot.sysctl", SYSCTL_FILE, missing=True)
    if state.units_behind:
        yield _repair("boot.units", missing=True)
    if state.initramfs != initramfs_digest(inputs.files):
        yield _repair("boot.initramfs", missing=True)
    yield from _running(inputs, state)


def additions(inputs: HostBootInputs, state: BootState) -> tuple[str, ...]:
    """Our part of the line; `state` must be free of conflicts."""
    return command_line.additions(state.others, inputs.kernel_arguments)


def follows(inputs: HostBootInputs, state: BootState) -> bool:
    """Whether the next boot has exactly our part, and the boot loader knows it."""
    add = additions(inputs, state)
    stale = set(state.ours) - set(add)
    return (
        state.ours == add
        and not state.loader_behind
        and not command_line.lacking(state.next_boot, inputs.kernel_arguments)
        and stale.isdisjoint(command_line.split(state.next_boot))
    )


def _conflicts(inputs: HostBootInputs, state: BootState) -> Iterator[Finding]:
    for conflict in command_line.conflicts(state.others, inputs.kernel_arguments):
        yield blocked("boot.conflict", conflict.theirs, ours=conflict.ours)
    if state.method is BootMethod.GRUBBY:
        for name in command_line.shared_names(state.others, additions(inputs, state)):
            yield blocked("boot.conflict", name, case="grubby")


def _file(path: str, content: str, found: FoundFile, *, ours: bool) -> Iterator[Finding]:
    if found.digest is None:
        yield _repair("boot.file-missing", path, missing=True)
    elif (found.digest, found.mode, found.owner) == (sha256_of(content.encode()), MODE, OWNER):
        return
    elif found.ours or ours:
        yield _repair("boot.file-changed", path)
    else:
        yield blocked("boot.file-foreign", path)


def _running(inputs: HostBootInputs, state: BootState) -> Iterator[Finding]:
    """What only another boot can change, and what forbids it."""
    lacking = command_line.lacking(state.running, inputs.kernel_arguments)
    if lacking:
        begun, words = set(state.ours) >= set(inputs.kernel_arguments), " ".join(lacking)
        yield repair("boot.running-arguments", step=REBOOT, missing=begun, words=words)
        if inputs.reboot is RebootPolicy.ALLOW and state.device_users != ():
            in_use = blocked("boot.in-use", words=words, users=state.device_users)
            yield blocked("boot.users-unknown") if state.device_users is None else in_use
        return
    for node, count in sorted(inputs.huge_pages_1g.items()):
        reserved = state.huge_pages_1g.get(int(node), 0)
        if reserved < count:
            where = f"node{node}"
            yield blocked("boot.huge-pages", where, node=node, reserved=reserved, count=count)
