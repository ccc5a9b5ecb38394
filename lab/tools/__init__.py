"""The programs that the lab runs: found, fetched or built, and cached."""

from lab.tools.model import Report, ToolError
from lab.tools.resolver import ensure, resolve

__all__ = ["Report", "ToolError", "ensure", "resolve"]
