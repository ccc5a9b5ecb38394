"""PCI functions of a host over SSH, from sysfs, and who holds their VFIO groups open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.domain.ports import PciFunction


class SshPciDevices:
    """`PciDevices` of one host; one round trip for all addresses.

    Args:
        host: where.
        with_users: also ask which processes hold the devices; takes a walk through /proc there.
    """

    def __init__(self, host: SshHost, *, with_users: bool) -> None:
        self._host = host
        self._want = "users" if with_users else "none"

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        """What the kernel says now about each address.

        Raises:
            AdapterError: not reached, or open files cannot be asked for.
        """
        tried = f"look at the PCI functions {', '.join(addresses)}"
        done = run_script(
            self._host,
            "inspect_pci",
            [self._want, *addresses],
            tried=tried,
            after=("vfio_users",),
            repeatable=True,
        )
        lines = done.stdout.decode(errors="replace").splitlines()
        found = {f.address: f for f in map(_parse, lines) if f is not None}
        if set(found) != set(addresses):
            raise InvalidAnswerError(
                self.place, tried, "not every function was answered for", "run again"
            )
        return found


def _parse(line: str) -> PciFunction | None:
    fields = line.split()
    if len(fields) != 5:
        return None
    address, group, driver, users, own = (None if f == "-" else f for f in fields)
    if address is None:
        return None
    if group == "absent":
        return PciFunction(address, present=False)
    pids = tuple(int(u) for u in users.split(",") if u.isdigit()) if users else ()
    return PciFunction(
        address,
        present=True,
        iommu_group=group,
        driver=driver,
        users=pids,
        vfio_device=own,
    )
