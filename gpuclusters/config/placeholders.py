"""Values that the examples have in place of a reader's own: a preview takes them, `up` does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuclusters.config.base import Section
from gpuclusters.config.cluster import ClusterConfig, uses_lab
from gpuclusters.config.fault import finding, show
from gpuclusters.core.finding import Finding, Path

_PLACEHOLDER = re.compile(
    r"(^|[./@-])example\.(com|net|org)\b"  # reserved for documents by RFC 2606
    r"|^my-project$"
    r"|^(ssh|ecdsa)-\S+ \S*EXAMPLE"
    r"|^(.*@sha256:)?0{48}[0-9a-f]{16}$",
)


def placeholders(config: ClusterConfig) -> list[Finding]:
    """All of them, none in a lab: there everything is made up."""
    return [] if uses_lab(config) else list(_below(config.model_dump(mode="json"), config, ()))


def _below(value: Any, model: Any, path: Path) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            inner = getattr(model, key, None) if isinstance(model, Section) else None
            name = key.replace("_", "-") if isinstance(model, Section) else str(key)
            yield from _below(one, inner, (*path, name))
    elif isinstance(value, list):
        items = model if isinstance(model, tuple) else [None] * len(value)
        for at, (one, inner) in enumerate(zip(value, items, strict=True)):
            yield from _below(one, inner, (*path, at))
    elif isinstance(value, str) and _PLACEHOLDER.search(value):
        wrong = "is a placeholder of the examples"
        yield finding(path, wrong, show(value), "write your own", "config.placeholder")
