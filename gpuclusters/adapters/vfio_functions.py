"""Functions that belong to vfio-pci on a host, over SSH, by the script that its unit runs at boot too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.scripts import FOLDER, run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.domain.reconcile_vfio import VfioParts
from gpuclusters.domain.vfio import UNIT, FoundFunction, VfioFunction

_RELEASE_SECONDS = 300.0
_FIELDS = 9


def parts() -> VfioParts:
    """Script and unit, as they are in this program."""
    return VfioParts((FOLDER / "vfio_bind.sh").read_text(), (FOLDER / UNIT).read_text())


class SshVfioHost:
    """`VfioHost` of one host; each call is one round trip."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def inspect(self, functions: Sequence[VfioFunction]) -> Mapping[str, FoundFunction]:
        """What the kernel says now about each address."""
        tried = f"look at the PCI functions {', '.join(f.address for f in functions)}"
        done = run_script(
            self._host,
            "vfio_bind",
            ["inspect", *(f.entry for f in functions)],
            tried=tried,
            repeatable=True,
        )
        lines = [line.split(" ") for line in done.stdout.decode(errors="replace").splitlines()]
        found = {words[0]: _found(words) for words in lines if len(words) == _FIELDS}
        if set(found) != {f.address for f in functions}:
            raise InvalidAnswerError(
                self.place, tried, "not every function was answered for", "run again"
            )
        return found

    def release(self, functions: Sequence[VfioFunction]) -> None:
        """Give functions back to the drivers that they have by nature."""
        run_script(
            self._host,
            "vfio_bind",
            ["release", *(f.entry for f in functions)],
            tried=f"give back {', '.join(f.address for f in functions)}",
            timeout_seconds=_RELEASE_SECONDS,
        )


def _found(words: Sequence[str]) -> FoundFunction:
    address, there, pci_id, pci_class, driver, group, override, header, users = words
    if there != "yes":
        return FoundFunction(address, present=False)
    return FoundFunction(
        address,
        present=True,
        pci_id=pci_id,
        pci_class=pci_class,
        driver=None if driver == "-" else driver,
        iommu_group=None if group == "-" else group,
        override=None if override == "-" else override,
        header=header,
        users=() if users == "-" else tuple(users.split(",")),
    )
