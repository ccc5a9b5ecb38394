"""Names of stacks and where their files lie below ``.pulumi``."""

import re
from dataclasses import dataclass

from engine.usererror import ExitCode, UserError

ORGANIZATION = "organization"
META = ".pulumi/meta.yaml"
STACKS = ".pulumi/stacks"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True)
class StackReference:
    project: str
    name: str

    def __str__(self) -> str:
        return f"{ORGANIZATION}/{self.project}/{self.name}"

    @property
    def checkpoint(self) -> str:
        return f"{STACKS}/{self.project}/{self.name}.json"

    @property
    def tags(self) -> str:
        """The tags; the ending keeps them apart from states."""
        return f"{STACKS}/{self.project}/{self.name}.pulumi-tags"

    @property
    def locks(self) -> str:
        return f".pulumi/locks/{self}"

    @property
    def history(self) -> str:
        """The folder of the pairs of update record and state."""
        return f".pulumi/history/{self.project}/{self.name}"

    @property
    def backups(self) -> str:
        """The folder of the states after each run."""
        return f".pulumi/backups/{self.project}/{self.name}"


def parse_reference(text: str, project: str | None) -> StackReference:
    """The stack named by ``name``, ``organization/name`` or ``organization/project/name``."""
    parts = text.split("/")
    if len(parts) > 3 or not all(parts):
        raise UserError(
            f"stack name {text!r} is not valid: write <name> or organization/<project>/<name>",
            ExitCode.CONFIGURATION,
        )
    if len(parts) > 1 and parts[0] != ORGANIZATION:
        raise UserError(
            f"stack name {text!r}: the organization of a file backend is always"
            f" {ORGANIZATION!r}, not {parts[0]!r}",
            ExitCode.CONFIGURATION,
        )
    chosen = parts[1] if len(parts) == 3 else project
    if chosen is None:
        raise UserError(
            f"stack name {text!r}: no Pulumi.yaml here; pass organization/<project>/<name>",
            ExitCode.CONFIGURATION,
        )
    for part in (chosen, parts[-1]):
        if not _NAME.fullmatch(part):
            raise UserError(
                f"stack name {text!r} is not valid: only letters, digits, '-', '_' and '.'"
                " are allowed, 100 at most",
                ExitCode.CONFIGURATION,
            )
    return StackReference(chosen, parts[-1])
