"""What decides whether a host can give its GPUs away: one script, one connection, one answer."""

from __future__ import annotations

import base64
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from gpuclusters.core.errors import DeniedError, InvalidAnswerError
from gpuclusters.core.facts import Facts
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.preflight.model import Bar, FabricFact, Holder, HostFacts, NumaFact, PciFact

_NOT_ASKED = "-"
_QEMU = re.compile(r"version ([0-9]+(?:\.[0-9]+)+)")
_GIB_IN_KIB = 2**20
# From the end of the script to the end of the command: closing a channel takes some round trips.
_SLOWEST_ANSWER_SECONDS = 5.0

Lines = tuple[tuple[str, ...], ...]


class _Said(Facts):
    """What the script prints."""

    format: Literal["1"]
    kernel: str
    command_line: str
    machine_id: str
    cpu: str
    """Vendor and flags."""
    acpi: frozenset[str] = frozenset()
    memory: int
    """In KiB."""
    numa: Lines = ()
    """Node, KiB, pages of 1 GiB."""
    pci: Lines = ()
    """Address, id, class, NUMA node."""
    group: frozenset[str] = frozenset()
    member: Mapping[str, str] = {}
    """Group by address; so are drivers, headers, resets and VFIO devices."""
    driver: Mapping[str, str] = {}
    header: Mapping[str, str] = {}
    reset: Mapping[str, str] = {}
    vfio_device: Mapping[str, str] = {}
    bar: Lines = ()
    """Address, number, first and last byte."""
    module: frozenset[str] = frozenset()
    node: frozenset[str] = frozenset()
    holder: Mapping[int, str] = {}
    package: Mapping[str, str] = {}
    qemu: str | None = None
    libvirt: str | None = None
    firmware: frozenset[str] = frozenset()
    command: frozenset[str] = frozenset()
    disk: int | None = None
    """Free KiB."""
    fabric: str | None = None
    """Exit status and output in base64."""
    clock: int
    """The last line: an answer without it is not whole."""


def read_facts(
    host: SshHost, addresses: Sequence[str], *, fabric_manager: str | None = None
) -> HostFacts:
    """Everything at once.

    An account that may not become root is a finding like others; the script then runs without.

    Args:
        host: where.
        addresses: PCI functions whose registers are read.
        fabric_manager: address of the fabric manager's API, to ask its client for the partitions.

    Raises:
        AdapterError: not reached, or the script failed or answered what cannot be read.
    """
    tried = "read what this machine is"

    def run(account: str = "") -> Completed:
        arguments = [fabric_manager or _NOT_ASKED, *addresses]
        script = "preflight/preflight"
        return run_script(host, script, arguments, tried=tried, repeatable=True, account=account)

    try:
        done, root = run(), True
    except DeniedError as error:
        if "sudo" not in error.problem:
            raise
        done, root = run(account=host.connection.user), False
    now = time.time()
    try:
        return parse(done.stdout.decode(errors="replace"), root=root, now=now)
    except (ValueError, IndexError) as error:
        raise InvalidAnswerError(
            host.target,
            tried,
            f"the answer cannot be read ({type(error).__name__}: {error})",
            "check that /bin/sh, awk, od and df on the host are the usual ones",
        ) from error


def parse(text: str, *, root: bool, now: float) -> HostFacts:
    """The facts in the script's answer.

    Args:
        text: what the script printed.
        root: whether it ran as root.
        now: our own clock when the answer had arrived, in seconds since 1970.

    Raises:
        ValueError, IndexError: it is not the script's answer, or not whole.
    """
    said = _Said.parse(text)
    vendor, *flags = said.cpu.split()
    version = _QEMU.search(said.qemu or "")
    return HostFacts(
        root=root,
        kernel=said.kernel,
        command_line=tuple(said.command_line.split()),
        machine_id=said.machine_id,
        cpu_vendor=vendor,
        cpu_flags=frozenset(flags),
        acpi_tables=said.acpi,
        memory_kib=said.memory,
        numa={int(node): NumaFact(int(kib), int(pages)) for node, kib, pages in said.numa},
        functions=_functions(said),
        iommu_groups=len(said.group),
        modules=said.module,
        nodes=said.node,
        holders=tuple(Holder(pid, name) for pid, name in said.holder.items()),
        packages=said.package,
        qemu=version.group(1) if version else None,
        libvirt=said.libvirt or None,
        firmware=said.firmware,
        commands=said.command,
        free_gib=None if said.disk is None else said.disk // _GIB_IN_KIB,
        clock_offset_seconds=_offset(said.clock, now),
        fabric=_fabric(said.fabric),
    )


def _functions(said: _Said) -> dict[str, PciFact]:
    bars: dict[str, dict[int, Bar]] = defaultdict(dict)
    for address, number, *region in said.bar:
        start, end = (int(one, 16) for one in region)
        # A region that is not there is all zeros.
        bars[address][int(number)] = Bar(start, end - start + 1 if end else 0)
    return {
        address: PciFact(
            address=address,
            pci_id=pci_id,
            class_code=class_code,
            numa_node=int(node) if int(node) >= 0 else None,
            driver=said.driver.get(address),
            iommu_group=said.member.get(address),
            header=bytes.fromhex(said.header.get(address, "")),
            bars=bars.get(address, {}),
            resettable={"yes": True, "no": False}.get(said.reset.get(address, "")),
            vfio_device=said.vfio_device.get(address),
        )
        for address, pci_id, class_code, node in said.pci
    }


def _offset(clock: int, now: float) -> float:
    """How far the host's clock is ahead. Its whole second and the answer's way count as none."""
    if clock <= now <= clock + 1 + _SLOWEST_ANSWER_SECONDS:
        return 0.0
    return clock - now


def _fabric(answer: str | None) -> FabricFact | None:
    if answer is None:
        return None
    status, _, encoded = answer.partition(" ")
    output = base64.b64decode(encoded, validate=True).decode(errors="replace")
    return FabricFact(int(status), output)
