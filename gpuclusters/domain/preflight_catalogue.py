"""Every finding of the preflight: what it means, what to do, and who says so.

The tables of docs/preflight.md are checked against this one. An id is part of what users search for and
alert on: it never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuclusters.domain import preflight_hardware_kinds, preflight_software_kinds
from gpuclusters.domain.preflight_kind import Kind

KINDS: Mapping[str, Kind] = {**preflight_hardware_kinds.KINDS, **preflight_software_kinds.KINDS}
