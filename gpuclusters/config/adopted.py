"""`adopt`: what is there already and becomes part of the stack; docs/adopt.md is its guide."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gpuclusters.config.base import DnsLabel, Section
from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.core.finding import Finding, Path


class AdoptedMachines(Section):
    """What is taken over when it is not in the state yet, if it is as declared: every difference is refused.

    Once it is in the state this key changes nothing and may go.
    """

    machines: tuple[DnsLabel, ...] = ()
    """Machines on which drivers, RKE2, partitions, the service VM, CDI files and settings may be there."""


class Adopted(AdoptedMachines):
    """What is taken over when it is not in the state yet, if it is as declared: every difference is refused.

    Once it is in the state this key changes nothing and may go.
    """

    tenants: tuple[DnsLabel, ...] = ()
    """Tenants whose Tenancy may be there."""


def strangers(path: Path, stated: Sequence[str], known: Collection[str]) -> Iterable[Finding]:
    """Names that are none of the cluster's."""
    for position, name in enumerate(stated):
        if name not in known:
            instead = f"write one of {show_values(sorted(known))}" if known else "leave it out"
            yield finding((*path, position), "is not in the cluster", show(name), instead)
