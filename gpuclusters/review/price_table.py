"""The price table that comes with the command, with a user's own laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from gpuclusters.compat import dated_table
from gpuclusters.domain.prices import PriceTable, laid_over


class PriceError(Exception):
    """A price table that cannot be used. The message has all faults."""

    error_id = "review.price-table"


@cache
def _shipped() -> Mapping[str, Any]:
    return dated_table.bare(dated_table.written("prices"))


def price_table(own: Path | Mapping[str, Any] | None = None) -> PriceTable:
    """The table.

    Args:
        own: a YAML file in the same form, of which only what differs has to be written; or what is in one.

    Raises:
        PriceError: the file cannot be read, or holds something else.
    """
    if own is None:
        return PriceTable.model_validate(_shipped())
    if isinstance(own, Path):
        name, stated = str(own), _read(own)
    else:
        name, stated = "(prices of the budget)", own
    if stated and "as-of" not in stated:
        raise PriceError(
            f"the price table {name} has no as-of: the day on which its prices were right"
        )
    try:
        return PriceTable.model_validate(laid_over(_shipped(), stated))
    except ValidationError as error:
        faults = "\n".join(
            f"  {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        )
        raise PriceError(f"the price table {name} has faults:\n{faults}") from error


def _read(own: Path) -> Mapping[str, Any]:
    try:
        stated = yaml.safe_load(own.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PriceError(f"the price table {own} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise PriceError(f"the price table {own} is not YAML: {error}") from error
    if not isinstance(stated, dict):
        raise PriceError(f"the price table {own} is not an object; docs/review.md shows one")
    return stated
