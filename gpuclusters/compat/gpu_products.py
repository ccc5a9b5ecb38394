"""GPUs as products (`data/gpu_products.yaml`); how one is cut is `mig_layout`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, partial

from gpuclusters.compat.dated_table import Row, Table

NVSWITCH_COUNTS = (8, 16)
"""GPUs of a machine whose SXM board has NVSwitches. HGX boards with 4 GPUs are wired without."""


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
    name: str
    """What `nvidia-smi` calls it."""
    architecture: Architecture
    memory_gib: int
    form: Form
    bf16_tflops: float
    """Dense rate in TFLOPS; what a proof takes a share of as its floor."""
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


table = cache(partial(Products.packaged, "gpu_products"))


def names() -> tuple[str, ...]:
    """All products, as a configuration names them."""
    return tuple(table().products)


def product(name: str) -> Product:
    """One product; KeyError if nobody has read about it."""
    return table().products[name]


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
