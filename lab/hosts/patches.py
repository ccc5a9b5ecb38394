"""Changes to a host's files that can be taken back: how faults of its hardware show and go away again."""

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from lab.files import read_json, write_json
from lab.hosts.folder import HostFolder
from lab.hosts.machine import resolve


class Patches:
    """What was changed on one host, in the order in which it was done."""

    def __init__(self, host: HostFolder) -> None:
        self._root = host.root
        self._log = host.path / "hardware.json"
        self._kept = host.path / "hardware"
        self._done: list[dict[str, Any]] = read_json(self._log) or []

    def undo(self) -> None:
        """Put everything back as it was; what has been made anew since then stays as it is."""
        for entry in reversed(self._done):
            path = self._at(entry["path"])
            kept = entry["kept"]
            if kept is None:
                _remove(path)
            elif path.parent.is_dir():
                _remove(path)
                (self._kept / kept).rename(path)
        shutil.rmtree(self._kept, ignore_errors=True)
        self._log.unlink(missing_ok=True)
        self._done = []

    def path(self, path: str) -> Path:
        """The file behind a path of the host."""
        return resolve(self._root, path)

    def write(self, path: str, content: str | bytes) -> None:
        mode = 0o644
        real = self._at(path)
        if real.exists() and not real.is_dir():
            mode = real.stat().st_mode & 0o777
        self._take(path)
        real.write_bytes(content if isinstance(content, bytes) else content.encode())
        real.chmod(mode)

    def script(self, path: str, content: str) -> None:
        self.write(path, content)
        self._at(path).chmod(0o755)

    def link(self, path: str, target: str) -> None:
        """Make a link to another path of the host, a relative one as in sysfs."""
        self._take(path)
        real = self._at(path)
        real.symlink_to(os.path.relpath(self._at(target), real.parent))

    def remove(self, path: str) -> None:
        """Take a file, a link or a folder away; absent is fine."""
        if os.path.lexists(self._at(path)):
            self._take(path)

    def _at(self, path: str) -> Path:
        return resolve(self._root, path, follow=False)

    def _take(self, path: str) -> None:
        """Move what is there aside; make the folders for what comes."""
        real, kept = self._at(path), None
        new = [str(p) for p in PurePosixPath(path).parents if not self._at(str(p)).exists()]
        if new:
            # The outermost first, which is the last of them: with it goes all that is made inside.
            self._at(new[0]).mkdir(parents=True)
            self._done.append({"path": new[-1], "kept": None})
        if os.path.lexists(real):
            kept = str(len(self._done))
            self._kept.mkdir(exist_ok=True)
            real.rename(self._kept / kept)
        self._done.append({"path": path, "kept": kept})
        write_json(self._log, self._done)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
