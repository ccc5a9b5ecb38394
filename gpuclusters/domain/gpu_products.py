"""GPUs as products: architecture, memory, how they can be cut, how fast they multiply.

The facts are a dated table, `data/gpu_products.yaml`; this module reads it and answers questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

TABLE = Path(__file__).with_name("data") / "gpu_products.yaml"
NVSWITCH_COUNTS = (8, 16)
"""GPUs of a machine whose SXM board has NVSwitches. HGX boards with 4 GPUs are wired without."""


class Architecture(StrEnum):
    """Generations of GPUs, as driver branches and kernel modules know them."""

    PASCAL = "pascal"
    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


class Form(StrEnum):
    """How a GPU is built in."""

    PCIE = "pcie"
    SXM = "sxm"
    SUPERCHIP = "superchip"


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Row(BaseModel):
    """A row of a dated table: unknown keys are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=_kebab)


class MigFamily(Row):
    """How the GPUs of one kind can be cut."""

    slices: tuple[int, int]
    """Compute slices and memory slices of one GPU."""
    profiles: Mapping[str, tuple[int, int, int, int]]
    """By name: compute slices, memory slices, how many of it alone fit, memory in GiB."""
    media: tuple[str, ...] = ()
    """Profiles with the media engines, one for each GPU."""


class Product(Row):
    """One GPU."""

    architecture: Architecture
    memory_gib: int
    form: Form
    bf16_tflops: float
    """Dense rate of its tensor cores in TFLOPS; what a proof takes a share of as its floor."""
    mig: str | None = None
    """Its family in the table; None if it cannot be cut."""
    minimum_driver: str | None = None
    """The first driver that knows it."""


class Products(Row):
    """The whole table."""

    as_of: date
    sources: tuple[str, ...]
    families: Mapping[str, MigFamily]
    products: Mapping[str, Product]


@cache
def table() -> Products:
    """The table as it is packaged."""
    return Products.model_validate(yaml.safe_load(TABLE.read_text(encoding="utf-8")))


def names() -> tuple[str, ...]:
    """All products, as a configuration names them."""
    return tuple(table().products)


def product(name: str) -> Product:
    """One product.

    Raises:
        KeyError: nobody has read about it.
    """
    return table().products[name]


def family(name: str) -> MigFamily | None:
    """How a product can be cut; None if it cannot."""
    mig = product(name).mig
    return None if mig is None else table().families[mig]


def has_nvswitch(name: str, count: int) -> bool:
    """Whether a machine with so many of these GPUs has NVSwitches, and so needs the fabric manager."""
    one = product(name)
    newer_than_pascal = one.architecture is not Architecture.PASCAL
    return (
        one.form is Form.SXM
        and newer_than_pascal
        and count in NVSWITCH_COUNTS
        and (one.architecture is not Architecture.VOLTA or count == max(NVSWITCH_COUNTS))
    )
