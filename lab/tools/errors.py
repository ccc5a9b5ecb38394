"""What can go wrong while a tool of the lab is looked for, fetched or built."""

from __future__ import annotations


class ToolError(RuntimeError):
    """A tool that could not be had; the message is one sentence for the user and says what to do."""
