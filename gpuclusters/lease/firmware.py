"""Firmware and knobs of a GPU compared with the golden set: what a tenant could have left behind.

The inventory is read from outside the machine, where no tenant has been. Names of its items vary by BMC
release (`HGX_FW_GPU_SXM_3`, `HGX_FW_GPU_3`), so the golden set names prefixes. An item whose id has the
word `GPU` in it belongs to the GPU whose module number ends the id; every other item (BMC, CPLD, switch)
belongs to the machine, and thereby to each of its GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SHOWN = 120
_GPU_ITEM = re.compile(r"(?:^|_)GPU(?:_.*)?_(\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Golden:
    """What a GPU must be like before the next tenant gets it.

    `versions` are accepted versions by prefix of the inventory item's id, `knobs` the expected value of
    each switch (ecc, mig, cc, ppcie: enabled or disabled, on or off).
    """

    versions: Mapping[str, tuple[str, ...]]
    knobs: Mapping[str, str]


def concerns(item: str, module: int) -> bool:
    """Whether an inventory item says something about this GPU: it is the GPU's own, or the machine's."""
    own = _GPU_ITEM.search(item)
    return own is None or int(own[1]) == module


def firmware_findings(
    golden: Golden, module: int, inventory: Mapping[str, str | None]
) -> tuple[str, ...]:
    """What is wrong with the firmware around one GPU, one sentence each; empty if nothing is.

    Args:
        golden: what is right.
        module: the GPU.
        inventory: version by id of the item; None for an item that states none.
    """
    return tuple(_firmware(golden, module, inventory))


def _firmware(golden: Golden, module: int, inventory: Mapping[str, str | None]) -> Iterator[str]:
    for prefix, accepted in sorted(golden.versions.items()):
        items = sorted(i for i in inventory if i.startswith(prefix) and concerns(i, module))
        if not items:
            yield f"the inventory has no item {prefix}* for GPU {module}"
        for item in items:
            version = inventory[item]
            if version not in accepted:
                yield (f"{item} is {shown(version)}, accepted is {' or '.join(accepted) or 'none'}")


def knob_findings(golden: Golden, knobs: Mapping[str, str]) -> tuple[str, ...]:
    """Which switches are not as they must be, one sentence each; a switch not read is wrong."""
    return tuple(
        f"{name} is {shown(knobs.get(name))}, must be {wanted}"
        for name, wanted in sorted(golden.knobs.items())
        if knobs.get(name) != wanted
    )


def shown(value: str | None) -> str:
    """As it goes into a message: firmware and its controller may say anything, of any length."""
    if value is None:
        return "not stated"
    clean = "".join(c if c.isprintable() else "?" for c in value)
    return clean if len(clean) <= _SHOWN else f"{clean[:_SHOWN]}…"
