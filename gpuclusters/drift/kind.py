"""What a kind of drift is: how bad, what it is about, and what puts it back where `up` does not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuclusters.core.codes import Severity


class Group(StrEnum):
    """Where a reader looks for it. The order is that of the report."""

    HOSTS = "hosts"
    CLUSTER = "cluster"
    TENANTS = "tenants"
    HELM = "helm"
    STACK = "stack"

    @property
    def rank(self) -> int:
        """0 comes first."""
        return list(Group).index(self)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of drift."""

    id: str
    """Stable, in kebab-case: scripts and `--ignore` name it."""
    group: Group
    severity: Severity
    title: str
    """What is wrong, in a few words."""
    do: str = ""
    """What puts it back where `up` does not. May name `{where}` and `{what}`."""
