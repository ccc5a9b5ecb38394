"""The programs that the lab runs: found, fetched or built, and cached."""

from __future__ import annotations

from lab.tools.model import Report, ToolError
from lab.tools.resolver import ensure, resolve

__all__ = ["Report", "ToolError", "ensure", "resolve"]
