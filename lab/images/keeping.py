"""What was written before and is used again: images and their big layers, the last of each kind.

A record says which file belongs to which key. Each use makes it young again, so that what goes is what has
not been asked for the longest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab.files import write_atomic
from lab.images import layer
from lab.images.archive import Image
from lab.images.layer import Entry, KeptLayer
from lab.tools import Report
from lab.tools.cache import ToolCache, cache_root, touch

KEPT = 3
"""Of each kind."""


class Shelf:
    """The folder of images, while no other process writes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def image(self, kind: str, key: str, build: Callable[[], Image]) -> Image:
        """The image that was made for this key, or the one that `build` makes now."""
        record = self.folder / f"{kind}-{key}.json"
        if said := self._known(record):
            return Image(said["name"], said["digest"], self.folder / said["file"])
        made = build()
        self._remember(kind, record, {"name": made.name, "digest": made.digest}, made.archive)
        return made

    def small(self, kind: str, made: Image) -> Image:
        """An image that is made anew each time, because that takes no time: old ones of its kind go."""
        record = self.folder / f"{kind}-{made.archive.stem.replace('-', '')}.json"
        self._remember(kind, record, {"name": made.name, "digest": made.digest}, made.archive)
        return made

    def layer(self, kind: str, key: str, entries: Callable[[], Iterable[Entry]]) -> KeptLayer:
        """The layer that was written for this key, or the one with these entries."""
        kind = f"layer-{kind}"
        record = self.folder / f"{kind}-{key}.json"
        if said := self._known(record):
            return KeptLayer(self.folder / said["file"], said["digest"])
        file = record.with_suffix(".tar")
        with ToolCache(self.folder).workspace() as work:
            with (work / file.name).open("wb") as out:
                digest = layer.write(entries(), out)
            (work / file.name).replace(file)
        self._remember(kind, record, {"digest": digest}, file)
        return KeptLayer(file, digest)

    def _known(self, record: Path) -> Mapping[str, str] | None:
        if not record.exists():
            return None
        said: Mapping[str, str] = json.loads(record.read_text())
        if not (self.folder / _file(said)).exists() or "file" not in said:
            return None
        touch(record)
        return said

    def _remember(self, kind: str, record: Path, said: Mapping[str, str], file: Path) -> None:
        write_atomic(record, json.dumps({**said, "file": file.name}).encode())
        touch(record)
        records = [p for p in self.folder.glob(f"{kind}-*.json") if _kind(p) == kind]
        records.sort(key=lambda path: path.stat().st_mtime_ns)
        files = {path: _file(json.loads(path.read_text())) for path in records}
        living = {files[path] for path in records[-KEPT:]}
        for path in records[:-KEPT]:
            path.unlink()
            if files[path] not in living:
                (self.folder / files[path]).unlink(missing_ok=True)


@contextmanager
def shelf(report: Report, folder: Path | None = None) -> Iterator[Shelf]:
    """The folder of images, shared by all labs of a user; waits while another process writes there.

    Raises:
        ToolError: it cannot be written to.
    """
    folder = folder or cache_root() / "images"
    with ToolCache(folder).lock(report):
        yield Shelf(folder)


def _kind(record: Path) -> str:
    return record.stem.rpartition("-")[0]


def _file(said: Mapping[str, str]) -> str:
    """The file of a record; those of an older release do not name it."""
    return said.get("file") or f"{said['digest'].removeprefix('sha256:')}.tar"
