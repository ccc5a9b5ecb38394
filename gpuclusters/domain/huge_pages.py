"""Huge pages of 1 GiB, reserved at boot for each NUMA node. Pure.

A virtual machine's memory is mapped into the IOMMU page by page; with pages of 1 GiB a machine with eight
GPUs starts in minutes. They can be had only at boot, while memory is in one piece. Source: the kernel's
`Documentation/admin-guide/kernel-parameters.txt`, `hugepages=` with `<node>:<count>,…` (since 5.16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SIZE_GIB = 1


def by_node(pages: Sequence[int]) -> Mapping[int, int]:
    """Pages by number of the NUMA node, from a list with one number for each node."""
    return dict(enumerate(pages))


def arguments(pages: Mapping[int, int]) -> tuple[str, ...]:
    """Kernel arguments that reserve so many pages of 1 GiB on each NUMA node; none for none.

    Raises:
        ValueError: a number of a node, or of its pages, is negative.
    """
    if any(node < 0 or count < 0 for node, count in pages.items()):
        raise ValueError("NUMA nodes and huge pages are counted from 0; write no negative number")
    wanted = {node: count for node, count in sorted(pages.items()) if count}
    if not wanted:
        return ()
    counts = ",".join(f"{node}:{count}" for node, count in wanted.items())
    return ("default_hugepagesz=1G", "hugepagesz=1G", f"hugepages={counts}")


def parse(value: str) -> Mapping[int, int] | None:
    """Pages by node of a value of `hugepages=`; None for a plain number, which the kernel spreads."""
    if ":" not in value:
        return None
    pages: dict[int, int] = {}
    for part in value.split(","):
        node, _, count = part.partition(":")
        if not (node.isdecimal() and count.isdecimal()):
            return None
        pages[int(node)] = int(count)
    return pages


def missing(wanted: Mapping[int, int], reserved: Mapping[int, int]) -> Mapping[int, int]:
    """How many pages each NUMA node lacks of what was asked for."""
    return {
        node: count - reserved.get(node, 0)
        for node, count in sorted(wanted.items())
        if count > reserved.get(node, 0)
    }
