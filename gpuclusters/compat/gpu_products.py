"""GPUs as products (`data/gpu_products.yaml`); how one is cut is `mig_layout`.

One that is not in the table is written by its PCI id and memory, `10de:2503-12gb`: its generation is read
from the id, and what else depends on the table is asked for by the rules, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, partial

from gpuclusters.compat.dated_table import Row, Table

NVSWITCH_COUNTS = (8, 16)
"""GPUs of a machine whose SXM board has NVSwitches. HGX boards with 4 GPUs are wired without."""
BY_PCI_ID = "10de:[0-9a-f]{4}-[1-9][0-9]{0,3}gb"
"""How a product is written that is not in the table."""


class Architecture(StrEnum):
    """Generations of GPUs in order, as driver branches and kernel modules know them."""

    MAXWELL = "maxwell"
    PASCAL = "pascal"
    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"

    def is_before(self, other: Architecture) -> bool:
        """Whether it is an older generation."""
        order = list(Architecture)
        return order.index(self) < order.index(other)


class Form(StrEnum):
    PCIE = "pcie"
    SXM = "sxm"
    SUPERCHIP = "superchip"


class Product(Row):
    name: str | None = None
    """What `nvidia-smi` calls it; None if it is not in the table."""
    architecture: Architecture
    memory_gib: int
    form: Form = Form.PCIE
    bf16_tflops: float | None = None
    """Dense rate in TFLOPS; what a proof takes a share of as its floor. None if it is not in the table."""
    sms: int | None = None
    """Streaming multiprocessors, as CUDA counts them; None if it is not in the table."""
    nvlinks: int | None = None
    """NVLinks of one GPU; None if it is not in the table."""
    mig: str | None = None
    """Its family in the table of MIG; None if it cannot be cut."""
    minimum_driver: str | None = None
    """The first driver that knows it, where it is younger than the oldest branch of the table."""
    cpu: str = "amd64"


class Kind(Row):
    """How the slices of some GPUs are laid out."""

    slices: tuple[int, int]
    """Compute slices and memory slices of one GPU."""
    starts: Mapping[str, tuple[int, ...]]
    """By `compute x memory` slices: the memory slices at which such an instance may begin."""


class Family(Row):
    """How GPUs of one memory size are cut."""

    kind: str
    profiles: Mapping[str, tuple[str, int, int]]
    """By name: kind of instance, memory in GiB, how many of it alone fit."""
    single: Mapping[str, str] = {}
    """Profiles of which a GPU can have one, and what each is a form of."""


class Products(Table):
    kinds: Mapping[str, Kind]
    families: Mapping[str, Family]
    products: Mapping[str, Product]
    generations: Mapping[int, Architecture | None]
    """By the first of a range of PCI ids; None for a range without GPUs that a driver here knows."""


table = cache(partial(Products.packaged, "gpu_products"))


def names() -> tuple[str, ...]:
    """All products, as a configuration names them."""
    return tuple(table().products)


def product(name: str) -> Product:
    """One product, of the table or written by PCI id; KeyError if it is neither."""
    known = table().products.get(name)
    if known is not None:
        return known
    pci_id, _, memory = name.partition("-")
    found = generation(pci_id) if re.fullmatch(BY_PCI_ID, name) else None
    if found is None:
        raise KeyError(name)
    memory_gib = int(memory.removesuffix("gb"))
    return Product.model_validate({"architecture": found, "memory-gib": memory_gib})


def generation(pci_id: str) -> Architecture | None:
    """The generation of a GPU by its PCI id, `10de:1db1`; None if drivers here know no such GPU."""
    number, ranges = int(pci_id.partition(":")[2] or "0", 16), table().generations
    return ranges[max(first for first in ranges if first <= number)]


def has_nvswitch(name: str, count: int) -> bool:
    """Whether a machine with so many of these GPUs has NVSwitches, and so needs the fabric manager."""
    one = product(name)
    if one.form is not Form.SXM or one.architecture is Architecture.PASCAL:
        return False
    if (
        one.architecture is Architecture.VOLTA
    ):  # boards with 8 are a mesh; SXM3 with 16 has switches
        return count == max(NVSWITCH_COUNTS)
    return count in NVSWITCH_COUNTS
