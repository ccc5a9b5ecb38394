"""`destroy --exclude-protected`: everything but what is protected, and what that needs."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from lab.engine.cli.stateedits import needs
from lab.engine.cli.workspace import Workspace


@dataclasses.dataclass(frozen=True)
class Protected:
    """The resources that stay, `count` of `total`."""

    count: int
    total: int

    @property
    def everything(self) -> bool:
        """Whether nothing would be destroyed."""
        return bool(self.total) and self.count == self.total

    @property
    def nothing_to_do(self) -> str:
        """What is said when nothing can be destroyed."""
        return (
            f"There were no unprotected resources to destroy. There are still {self.count}"
            " protected resources associated with this stack."
        )

    @property
    def all_done(self) -> str:
        """What is said at the end."""
        return (
            f"All unprotected resources were destroyed. There are still {self.count} protected"
            " resources associated with this stack."
        )


def exclude(arguments: argparse.Namespace, workspace: Workspace) -> Protected | None:
    """Add what has to stay to the excluded resources; None if the flag is not set."""
    if not getattr(arguments, "exclude_protected", False):
        return None
    resources = workspace.backend.checkpoint(workspace.stack).resources
    staying = kept(resources)
    arguments.exclude = [*arguments.exclude, *staying]
    return Protected(len(staying), len({r["urn"] for r in resources}))


def kept(resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """The URNs of protected resources and of all that they need, in the order of the state."""
    wanted: set[str] = set()
    for resource in reversed(resources):
        if resource.get("protect") or resource["urn"] in wanted:
            wanted |= {str(resource["urn"]), *needs(resource)}
    return [str(r["urn"]) for r in resources if r["urn"] in wanted and not r.get("delete")]
