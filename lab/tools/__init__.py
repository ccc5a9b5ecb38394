"""The programs that the lab runs: found, fetched or built, and cached."""

from __future__ import annotations

from lab.tools.errors import ToolError
from lab.tools.report import Report
from lab.tools.resolver import ensure, resolve

__all__ = ["Report", "ToolError", "ensure", "resolve"]
