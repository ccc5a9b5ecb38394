"""Which PCI functions of a host belong to vfio-pci.

A function is named by its address and proven by its ids: a wrong address in the configuration meets
another device, whose ids differ, and nothing is touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from gpuclusters.core.model import Strict, matches
from gpuclusters.core.section import PciAddress
from gpuclusters.host.model import HostConnection

GPU_CLASS, SWITCH_CLASS = "0302", "0680"
"""3D controller and bridge of no kind that PCI names: what an HGX board's GPUs and NVSwitches are."""
NVSWITCH_PCI_ID = "10de:22a3"


class VfioFunction(Strict):
    """One function: where it is, and what has to be found there."""

    address: PciAddress
    pci_id: Annotated[
        str, matches(r"[0-9a-f]{4}:[0-9a-f]{4}", "write vendor:device, like '10de:2330'")
    ]
    pci_class: Annotated[
        str, matches(r"([0-9a-f]{2}){0,3}", "write the first digits of its class, like '0302'")
    ] = ""
    """Class that it must have, from the left; empty: any but a bridge of buses."""

    @property
    def entry(self) -> str:
        """As a word of the list on the host."""
        return f"{self.address}={self.pci_id}={self.pci_class}"


def board_functions(
    *,
    gpus: Mapping[int, str],
    gpu_pci_id: str,
    switches: Sequence[str] = (),
    switch_pci_id: str = NVSWITCH_PCI_ID,
    extra_functions: Sequence[str] = (),
    extra_pci_id: str | None = None,
) -> tuple[VfioFunction, ...]:
    """All functions of a board that leave the host: GPUs by module, switches, and what goes with them."""
    if extra_functions and extra_pci_id is None:
        raise ValueError("extra functions without their PCI id would be taken unproven")
    found = [
        VfioFunction(address=a, pci_id=gpu_pci_id, pci_class=GPU_CLASS)
        for _, a in sorted(gpus.items())
    ]
    found += [
        VfioFunction(address=a, pci_id=switch_pci_id, pci_class=SWITCH_CLASS) for a in switches
    ]
    found += [VfioFunction(address=a, pci_id=str(extra_pci_id)) for a in extra_functions]
    return tuple(found)


class VfioBindingInputs(Strict):
    """Inputs of the binding of one host."""

    connection: HostConnection
    functions: Annotated[tuple[VfioFunction, ...], Field(min_length=1)]
    adopt: bool = False

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}/vfio"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The functions by address, sorted."""
        return tuple(sorted(function.address for function in self.functions))


@dataclass(frozen=True, slots=True)
class FoundFunction:
    """What the kernel says about a function now. `users` in words, like `pid:4711` or `net:eth0`."""

    address: str
    present: bool
    pci_id: str = ""
    pci_class: str = ""
    driver: str | None = None
    iommu_group: str | None = None
    override: str | None = None
    header: str = ""
    users: tuple[str, ...] = ()
