"""Providers that run already: ``PULUMI_DEBUG_PROVIDERS=name:port,…`` says where."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from lab.engine.plugins import PluginError, PluginProcess

VARIABLE = "PULUMI_DEBUG_PROVIDERS"


class AttachedProcess(PluginProcess):
    """A provider that somebody else has started, and will end."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self._at = port

    def address(self) -> str:
        """See `PluginProcess`."""
        return f"127.0.0.1:{self._at}"

    def ended(self, serves: Callable[[], bool]) -> int | None:  # noqa: ARG002
        """Nobody can tell."""
        return None

    def last_words(self) -> str:
        """What it says goes elsewhere."""
        return f" (it was to be at 127.0.0.1:{self._at}, by {VARIABLE})"

    def kill(self) -> None:
        """It goes on for others."""


def attached(package: str, environ: Mapping[str, str] = os.environ) -> AttachedProcess | None:
    """The provider of a package that runs already; None if the engine has to start it.

    Raises:
        PluginError: the variable is malformed.
    """
    for entry in filter(None, environ.get(VARIABLE, "").split(",")):
        name, _, port = entry.strip().rpartition(":")
        if not name or not port.isdigit() or not 0 < int(port) < 65536:
            raise PluginError(f"{VARIABLE}: {entry!r} is not NAME:PORT")
        if name == package:
            return AttachedProcess(name, int(port))
    return None
