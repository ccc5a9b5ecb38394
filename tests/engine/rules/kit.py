"""What all tests of rules need."""

from __future__ import annotations

from engine import urn as urns
from engine.events import Diagnostic
from tests.engine.enginekit import TYPE, Ended


def urn(name: str, *, parent: str = "", type_: str = TYPE) -> str:
    """The URN of a thing of the test's stack; `parent` is that of its parent."""
    return urns.make("dev", "memory", parent, type_, name)


GROUP = "mem:index:Group"


def messages(ended: Ended, severity: str = "error") -> str:
    """All that the user was told with this severity."""
    told = [e for e in ended.events if isinstance(e, Diagnostic)]
    return "\n".join(e.message for e in told if e.severity == severity)


def names(ended: Ended) -> list[str]:
    """The resources in the state, without stack and default provider."""
    return [r.name for r in ended.snapshot.resources if r.name not in ("memory-dev", "default")]
