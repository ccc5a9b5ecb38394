"""PCI addresses and the functions of one machine that leave the host for a VM."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


def is_pci_address(text: str) -> bool:
    """Whether the text is a full address as sysfs writes it, `0000:0f:00.0`."""
    return _PCI_ADDRESS.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Board:
    """Which functions go to tenants' VMs and which to the service VM."""

    gpus: Mapping[int, str]
    """PCI address by module number."""
    switches: tuple[str, ...]
    extra_functions: tuple[str, ...]

    @property
    def service_vm(self) -> tuple[str, ...]:
        """The functions of the VM in which the fabric manager runs."""
        return self.switches + self.extra_functions


def repeated(addresses: Sequence[str]) -> tuple[str, ...]:
    """Addresses that occur more than once, in order."""
    return tuple(address for address, n in Counter(addresses).items() if n > 1)
