"""The stack that is meant when none is named, kept where the Pulumi CLI keeps it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine.atomicfile import write_bytes
from engine.project import Project


def _file(home: Path, project: Project) -> Path:
    digest = hashlib.sha1(str(project.file).encode(), usedforsecurity=False).hexdigest()
    return home / "workspaces" / f"{project.name}-{digest}-workspace.json"


def selected(home: Path, project: Project) -> str | None:
    """The name of the selected stack, as it was written; None if there is none."""
    try:
        settings = json.loads(_file(home, project).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Nothing was ever selected here, or the file is damaged: then a stack has to be named.
        return None
    name = settings.get("stack") if isinstance(settings, dict) else None
    return name if isinstance(name, str) and name else None


def select(home: Path, project: Project, stack: str | None) -> None:
    """Remember a stack; None forgets it."""
    file = _file(home, project)
    if stack is None:
        file.unlink(missing_ok=True)
        return
    write_bytes(file, json.dumps({"stack": stack}, indent=4).encode(), durable=False)
