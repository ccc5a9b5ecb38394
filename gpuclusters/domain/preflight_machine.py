"""Preflight: the account, the processor, memory, disk and clock."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.core.finding import Finding
from gpuclusters.domain.preflight_finding import Check, Look, wrong

_GIB_IN_KIB = 2**20
# Firmware and kernel keep some for themselves before MemTotal is counted (page structures alone are 1.6 %).
_KEPT = 0.05


def account_is_an_administrator(look: Look) -> Iterator[Finding]:
    """`sudo -n` works."""
    if not look.facts.root:
        yield wrong("sudo-password", "`sudo -n` asks for a password", "none")


def processor_runs_vms(look: Look) -> Iterator[Finding]:
    """VT-x or SVM is there, and the machine is none itself."""
    flags = look.facts.cpu_flags
    if "hypervisor" in flags:
        yield wrong("host-is-virtual", "the processor shows `hypervisor`", "a physical machine")
    if not flags & {"vmx", "svm"}:
        yield wrong("virtualization-off", "the processor shows neither vmx nor svm", "one of them")


def memory_is_there(look: Look) -> Iterator[Finding]:
    """As much memory as the configuration counts on."""
    wanted, found = look.expects.memory_gib, look.facts.memory_kib
    if wanted is not None and found < wanted * _GIB_IN_KIB * (1 - _KEPT):
        yield wrong("memory-short", f"{found // _GIB_IN_KIB} GiB of memory", f"{wanted} GiB")


def memory_lies_as_expected(look: Look) -> Iterator[Finding]:
    """As many NUMA nodes as the platform has."""
    wanted = look.expects.numa_nodes
    if wanted is not None and look.facts.numa and len(look.facts.numa) != wanted:
        yield wrong("numa-nodes", f"{len(look.facts.numa)} NUMA nodes", str(wanted))


def huge_pages_can_be_reserved(look: Look) -> Iterator[Finding]:
    """The processor has them, and every NUMA node has the memory for its share."""
    wanted = look.expects.huge_pages_1g
    if not any(wanted.values()):
        return
    if "pdpe1gb" not in look.facts.cpu_flags:
        yield wrong("huge-pages-unsupported", "the processor lacks pdpe1gb", "pages of 1 GiB")
    for number, pages in sorted(wanted.items()):
        node = look.facts.numa.get(int(number))
        room = node.memory_kib // _GIB_IN_KIB if node else 0
        if pages > room:
            yield wrong(
                "huge-pages-too-many",
                f"NUMA node {number} has {room} GiB",
                f"more than the {pages} GiB to be reserved on it",
            )


def huge_pages_are_reserved(look: Look) -> Iterator[Finding]:
    """Each NUMA node has at least its pages."""
    for number, pages in sorted(look.expects.huge_pages_1g.items()):
        node = look.facts.numa.get(int(number))
        found = node.huge_pages_1g if node else 0
        if found < pages:
            yield wrong(
                "huge-pages-short",
                f"NUMA node {number}: {found} huge pages of 1 GiB",
                str(pages),
            )


def disk_has_room(look: Look) -> Iterator[Finding]:
    """Room for packages and the service VM."""
    free, wanted = look.facts.free_gib, look.expects.disk_gib
    if free is not None and free < wanted:
        yield wrong("disk-short", f"{free} GiB free in the root file system", f"{wanted} GiB")


def clock_is_right(look: Look) -> Iterator[Finding]:
    """The machine's clock agrees with ours."""
    offset, most = look.facts.clock_offset_seconds, look.expects.clock_offset_seconds
    if abs(offset) > most:
        way = "ahead" if offset > 0 else "behind"
        yield wrong("clock-skew", f"its clock is {abs(offset):.0f} s {way}", f"at most {most} s")


CHECKS: tuple[Check, ...] = (
    account_is_an_administrator,
    processor_runs_vms,
    memory_is_there,
    memory_lies_as_expected,
    huge_pages_can_be_reserved,
    huge_pages_are_reserved,
    disk_has_room,
    clock_is_right,
)
