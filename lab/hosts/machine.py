"""What a simulated host remembers between commands, and safe access to its file system."""

import errno
import json
import os
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.hosts import journal
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import Board
from lab.hosts.packages.catalogue import made_with

_MAX_LINKS = 40
_NO_LINK = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})

PREPARED = Path(__file__).parent / "prepared"
"""Files of a prepared machine, recorded."""
FILES = Path(__file__).parent / "files"
"""Texts that programs bring along, as their makers write them."""


class Machine:
    """One host as its stand-ins see it.

    `state` is a plain mapping, one key per stand-in, written after every call that changed it, so
    that a killed server forgets nothing that a command had reported as done.
    """

    def __init__(self, folder: HostFolder, board: Board) -> None:
        self.folder = folder
        self.board = board
        self.state: dict[str, Any] = read_json(folder.state) or {}
        self._saved = ""
        identity = read_json(folder.identity) or {}
        self.system: str = identity.get("system", "ubuntu")
        self.condition: str = identity.get("condition", "prepared")
        """`prepared`, `node` or `bare`: what the machine was like when it was made."""
        if "packages" not in self.state:
            self.state["packages"] = made_with(board.passes_gpus_on, self.condition)

    @property
    def name(self) -> str:
        return self.folder.name

    def save(self) -> None:
        """Write the state, if it is another than the one that was written."""
        text = json.dumps(self.state, sort_keys=True)
        if text != self._saved:
            write_json(self.folder.state, self.state)
            self._saved = text

    def note(self, event: str, **values: Any) -> None:
        """Write an entry into the host's journal."""
        journal.write(self.folder, event, **values)

    @property
    def packages(self) -> dict[str, str]:
        """What is installed: version by name."""
        found: dict[str, str] = self.state["packages"]
        return found

    @property
    def held(self) -> list[str]:
        """Packages that are not to change, sorted."""
        found: list[str] = self.state.setdefault("held", [])
        return found

    def has_package(self, *names: str) -> bool:
        """Whether a package is installed, by any of its names, in whatever version."""
        return any(name in self.packages for name in names)

    def partitions_in_use(self) -> dict[int, dict[str, Any]]:
        """Which partitions virtual machines run on: holder and process id by partition."""
        users: dict[str, dict[str, Any]] = read_json(self.folder.virtual_machines) or {}
        return {int(partition): user for partition, user in users.items()}

    def path(self, path: str, *, follow: bool = True) -> Path:
        """The file of the machine behind a path of the host, links resolved inside the host.

        A link on a host may be absolute, or climb with `..`; followed by the machine it would lead
        out of the host's root.
        """
        return resolve(self.folder.root, path, follow=follow)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the host; folders that are missing are made."""
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def read_text(self, path: str) -> str | None:
        """The text of a file of the host, None when there is none."""
        try:
            return self.path(path).read_text(errors="replace")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None


def resolve(root: Path, path: str, *, follow: bool = True) -> Path:
    """Where `path`, as seen from inside `root`, lies on the machine.

    `follow`: whether a link in the last place is followed too. Raises OSError for a loop of links.
    """
    # Text instead of `Path` for each part: this is most of what a stand-in does.
    start = os.fspath(root)
    todo = _parts(path)
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            if done:
                done.pop()
            continue
        target = _link("/".join([start, *done, part])) if todo or follow else None
        if target is None:
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done = []
        todo += _parts(target)
    return root.joinpath(*done)


def _parts(path: str) -> list[str]:
    """The parts of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _link(path: str) -> str | None:
    """Where a link leads; None for what is no link, or not there."""
    try:
        return os.readlink(path)  # noqa: PTH115 (a Path costs more than the call)
    except OSError as error:
        if error.errno in _NO_LINK:
            return None
        raise
