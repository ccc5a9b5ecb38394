"""The driver of a host of a rootless cluster, as packages on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedDriver:
    """What is installed, and how."""

    version: str
    """Exact, of branch 580 for a V100."""
    modules: Literal["open", "proprietary"]
    packages: Literal["distribution", "nvidia"]
    may_reboot: bool
    reboot_timeout_seconds: int
