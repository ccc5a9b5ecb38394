"""What holds of machines that are listed under `hosts`, whatever the cluster type."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.config.fault import finding, show
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.core.finding import Finding


def listed_twice(hosts: object) -> Iterator[Finding]:
    """Names and addresses that stand for two machines; of hosts that are not listed there are none."""
    if not isinstance(hosts, ExistingHosts):
        return
    names: dict[str, int] = {}
    places: dict[str, int] = {}
    for number, machine in enumerate(hosts.machines):
        place = f"{machine.address}:{machine.port}"
        for key, value, seen in (("name", machine.name, names), ("address", place, places)):
            if value in seen:
                yield finding(
                    ("hosts", "machines", number, key),
                    f"is also that of machines[{seen[value]}]",
                    show(value),
                    "write the one of this machine",
                )
            seen.setdefault(value, number)
