"""Where the state is kept: a ``file://`` address, from the environment, the project or a login."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.atomicfile import write_bytes
from engine.project import Project
from engine.usererror import ExitCode, UserError


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


_SCHEME = "file://"


def pulumi_home(environ: Mapping[str, str] | None = None) -> Path:
    """The folder in which the CLI keeps what belongs to the user: ``$PULUMI_HOME``."""
    env = os.environ if environ is None else environ
    return Path(env["PULUMI_HOME"]) if env.get("PULUMI_HOME") else Path.home() / ".pulumi"


def backend_folder(project_url: str | None, environ: Mapping[str, str] | None = None) -> Path:
    """The folder that holds ``.pulumi``.

    Asked in this order: ``PULUMI_BACKEND_URL``, ``backend.url`` of the project, the last login.
    """
    env = os.environ if environ is None else environ
    url = env.get("PULUMI_BACKEND_URL") or project_url or _login(pulumi_home(env))
    if not url:
        raise UserError(
            "no backend is chosen: set PULUMI_BACKEND_URL=file:///path/to/a/folder"
            " (or backend.url in Pulumi.yaml)",
            ExitCode.CONFIGURATION,
        )
    return parse(url)


def parse(url: str) -> Path:
    """The folder of a ``file://`` address; ``~`` is the home folder, other paths may be relative."""
    if not url.startswith(_SCHEME):
        scheme = urlsplit(url).scheme or url
        raise UserError(
            f"backend {url!r}: the embedded engine keeps state in files only (file://…),"
            f" not in {scheme!r}; use the Pulumi CLI for other backends",
            ExitCode.CONFIGURATION,
        )
    path = unquote(url.removeprefix(_SCHEME).partition("?")[0])
    folder = Path(path or ".").expanduser().absolute()
    if not folder.is_dir():
        raise UserError(
            f"unable to open the backend {url}: there is no folder {folder}; make it first",
            ExitCode.CONFIGURATION,
        )
    return Path(os.path.normpath(folder))


def _login(home: Path) -> str | None:
    try:
        credentials = json.loads((home / "credentials.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Nobody logged in; a damaged file belongs to the CLI, which will say so itself.
        return None
    current = credentials.get("current") if isinstance(credentials, dict) else None
    return current if isinstance(current, str) else None
