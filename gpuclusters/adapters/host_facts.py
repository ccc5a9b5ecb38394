"""What decides whether a host can give its GPUs away: one script, one connection, one answer."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from gpuclusters.core import scripts
from gpuclusters.core.errors import DeniedError, InvalidAnswerError
from gpuclusters.domain.preflight_facts import (
    Bar,
    FabricFact,
    Holder,
    HostFacts,
    NumaFact,
    PciFact,
)
from gpuclusters.host.script import command_error
from gpuclusters.host.ssh import Completed, SshHost

FORMAT = "1"
_NOT_ASKED = "-"
_QEMU = re.compile(r"version ([0-9]+(?:\.[0-9]+)+)")
_GIB_IN_KIB = 2**20
# From the end of the script to the end of the command: closing a channel takes some round trips.
_SLOWEST_ANSWER_SECONDS = 5.0

Words = Mapping[str, Sequence[Sequence[str]]]


class SshHostFacts:
    """Reads the facts of one host."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    @property
    def target(self) -> str:
        """Name, address and port of the host."""
        return self._host.target

    def read(self, addresses: Sequence[str], *, fabric_manager: str | None = None) -> HostFacts:
        """Everything at once.

        An account that may not become root is a finding like others; the script then runs without.

        Args:
            addresses: PCI functions whose registers are read.
            fabric_manager: address of the fabric manager's API, to ask its client for the partitions.

        Raises:
            AdapterError: not reached, or the script failed or answered what cannot be read.
        """
        tried = "read what this machine is"
        arguments = [fabric_manager or _NOT_ASKED, *addresses]
        done = self._run(arguments, tried, as_root=True)
        root = True
        if done.status != 0 and isinstance(
            error := command_error(self._host, tried, done), DeniedError
        ):
            if "sudo" not in error.problem:
                raise error
            root, done = False, self._run(arguments, tried, as_root=False)
        now = time.time()
        if done.status != 0:
            raise command_error(self._host, tried, done)
        try:
            return parse(done.stdout.decode(errors="replace"), root=root, now=now)
        except (ValueError, IndexError, KeyError) as error:
            raise InvalidAnswerError(
                self.target,
                tried,
                f"the answer cannot be read ({type(error).__name__}: {error})",
                "check that /bin/sh, awk, od and df on the host are the usual ones",
            ) from error

    def _run(self, arguments: Sequence[str], tried: str, *, as_root: bool) -> Completed:
        return self._host.run(
            ["sh", "-s", "--", *arguments],
            tried=tried,
            stdin=_script(),
            repeatable=True,
            as_root=as_root,
        )


@cache
def _script() -> bytes:
    return scripts.read("preflight/preflight.sh").encode()


def parse(text: str, *, root: bool, now: float) -> HostFacts:
    """The facts in the script's answer.

    Args:
        text: what the script printed.
        root: whether it ran as root.
        now: our own clock when the answer had arrived, in seconds since 1970.

    Raises:
        ValueError, IndexError, KeyError: it is not the script's answer, or not whole.
    """
    words = _words(text)
    if _one(words, "format") != FORMAT:
        raise ValueError(f"format {_one(words, 'format')!r}")
    vendor, *flags = words["cpu"][0]
    disk = words.get("disk", ())
    return HostFacts(
        root=root,
        kernel=_one(words, "kernel"),
        command_line=tuple(_one(words, "command-line").split()),
        boot_id=_one(words, "boot-id"),
        machine_id=_one(words, "machine-id"),
        product=_one(words, "product"),
        cpu_vendor=vendor,
        cpu_flags=frozenset(flags),
        acpi_tables=_set(words, "acpi"),
        memory_kib=int(_one(words, "memory")),
        numa={
            int(node): NumaFact(int(kib), int(pages)) for node, kib, pages in words.get("numa", ())
        },
        functions=_functions(words),
        iommu_groups=len(words.get("group", ())),
        modules=_set(words, "module"),
        nodes=_set(words, "node"),
        holders=tuple(
            Holder(through, int(pid), name) for through, pid, name in words.get("holder", ())
        ),
        packages={values[0]: values[1] for values in words.get("package", ())},
        qemu=_qemu(words),
        libvirt=words["libvirt"][0][0] or None if "libvirt" in words else None,
        firmware=_set(words, "firmware"),
        commands=_set(words, "command"),
        free_gib=int(disk[0][0]) // _GIB_IN_KIB if disk else None,
        clock_offset_seconds=_offset(int(_one(words, "clock")), now),
        fabric=_fabric(words),
    )


def _words(text: str) -> Words:
    found: dict[str, list[Sequence[str]]] = defaultdict(list)
    for line in text.splitlines():
        word, *values = line.split("\t")
        found[word].append(values)
    return found


def _one(words: Words, word: str) -> str:
    lines = words.get(word)
    if not lines or len(lines) != 1 or len(lines[0]) != 1:
        raise ValueError(f"there is not exactly one {word!r}")
    return lines[0][0]


def _set(words: Words, word: str) -> frozenset[str]:
    return frozenset(values[0] for values in words.get(word, ()))


def _functions(words: Words) -> dict[str, PciFact]:
    groups = {address: group for group, address in words.get("member", ())}
    drivers = {address: driver for driver, address in words.get("driver", ())}
    headers = {address: bytes.fromhex(text) for address, text in words.get("header", ())}
    resets = {address: said == "yes" for address, said in words.get("reset", ())}
    devices = {values[0]: values[1] for values in words.get("vfio-device", ())}
    bars: dict[str, dict[int, Bar]] = defaultdict(dict)
    for address, number, start, end in words.get("bar", ()):
        bars[address][int(number)] = _bar(int(start, 16), int(end, 16))
    return {
        address: PciFact(
            address=address,
            pci_id=pci_id,
            class_code=class_code,
            numa_node=int(node) if int(node) >= 0 else None,
            driver=drivers.get(address),
            iommu_group=groups.get(address),
            header=headers.get(address, b""),
            bars=bars.get(address, {}),
            resettable=resets.get(address),
            vfio_device=devices.get(address),
        )
        for address, pci_id, class_code, node in words.get("pci", ())
    }


def _bar(start: int, end: int) -> Bar:
    """Start and last address; a region that is not there is all zeros."""
    return Bar(start, end - start + 1 if end else 0)


def _qemu(words: Words) -> str | None:
    if "qemu" not in words:
        return None
    found = _QEMU.search(words["qemu"][0][0])
    return found.group(1) if found else None


def _offset(clock: int, now: float) -> float:
    """How far the host's clock is ahead. Its whole second and the answer's way count as none."""
    if clock <= now <= clock + 1 + _SLOWEST_ANSWER_SECONDS:
        return 0.0
    return clock - now


def _fabric(words: Words) -> FabricFact | None:
    if "fabric" not in words:
        return None
    status, encoded = words["fabric"][0]
    try:
        output = base64.b64decode(encoded, validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise ValueError(f"the fabric manager's answer is not whole: {error}") from error
    return FabricFact(int(status), output)
