"""What containerd keeps of images, made once for a set of archives and then linked into each node.

Unpacking 300 MB takes a node several seconds of a processor, and the result is the same in each. So one
containerd unpacks them, in a folder of the cache, and nodes get its files as further names of the same files:
neither content nor the lower folders of a container are ever written to. Only its databases are copied.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.nodes.loading import KNOWN
from lab.nodes.model import NodesError
from lab.tools import Report, ToolError
from lab.tools.cache import ToolCache, cache_root, touch

_PROJECT = Path(__file__).resolve().parents[2]
_SECONDS = 300
STORES = 8
"""How many are kept. More than of images: a lab of each kind has other images, and what they have in common
is there once."""
_UNSHARED = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_LINKED = ("io.containerd.content.v1.content", "io.containerd.snapshotter.v1.overlayfs")
_DATABASES = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with containerd's root folder, and the archives whose images are in it."""

    path: Path

    @property
    def root(self) -> Path:
        """As containerd has it."""
        return self.path / "root"

    @property
    def known(self) -> Path:
        """What was imported, as `lab.nodes.loading` keeps it."""
        return self.path / "images.json"


def prepare(images: Sequence[Path], programs: Mapping[str, Path], report: Report) -> None:
    """Unpack the archives now if that was not done before, so that no node waits for it.

    Raises:
        NodesError: as `furnish`.
    """
    shelf = ToolCache(cache_root() / "stores")
    try:
        with shelf.lock(report):
            _made(shelf, images, programs, report)
    except ToolError as error:
        raise NodesError(str(error)) from error


def furnish(
    target: Path, images: Sequence[Path], programs: Mapping[str, Path], report: Report
) -> None:
    """Give a containerd that has nothing yet the images that these archives hold.

    Where files cannot have several names (another disk), it stays empty, and the images are imported
    when it starts.

    Args:
        target: its root folder, which is not there yet.
        images: the archives.
        programs: containerd and ctr.
        report: receives a line when a store has to be made.

    Raises:
        NodesError: containerd cannot be made to take the archives, or the cache cannot be written to.
    """
    if not images or target.exists():
        return
    shelf = ToolCache(cache_root() / "stores")
    try:
        with shelf.lock(report):
            store = _made(shelf, images, programs, report)
            _link(store.root, target)
            shutil.copy(store.known, target / KNOWN)
    except subprocess.CalledProcessError as error:
        report(f"images are imported into each node: {error.stderr.strip()[-200:]}")
        shutil.rmtree(target, ignore_errors=True)
    except ToolError as error:
        raise NodesError(str(error)) from error


def _made(
    shelf: ToolCache, images: Sequence[Path], programs: Mapping[str, Path], report: Report
) -> Store:
    """The store of these archives; made out of the most like it when it is not there."""
    told = " ".join([*sorted(image.name for image in images), str(programs["containerd"])])
    store = Store(shelf.folder / f"store-{hashlib.sha256(told.encode()).hexdigest()[:16]}")
    if store.known.exists():
        touch(store.path)
        return store
    report("unpacking the images of the nodes")
    with shelf.workspace() as work:
        made = Store(work)
        if nearest := _nearest(_by_age(shelf), images):
            _link(nearest.root, made.root)
        _fill(made, images, programs)
        # From its first file on it is whole.
        work.rename(store.path)
        touch(store.path)
    for old in _by_age(shelf)[:-STORES]:
        shutil.rmtree(old.path)
    return store


def _by_age(shelf: ToolCache) -> list[Store]:
    """The stores that there are; what was used last comes last."""
    found = sorted(shelf.folder.glob("store-*"), key=lambda path: path.stat().st_mtime_ns)
    return [Store(path) for path in found]


def _nearest(stores: Sequence[Store], images: Sequence[Path]) -> Store | None:
    """The one with most of these archives; of several the one with most of others, of those the last."""
    wanted = {str(image) for image in images}
    held = [set(json.loads(store.known.read_text())["images"]) for store in stores]
    ranked = [(len(has & wanted), len(has), place) for place, has in enumerate(held)]
    return stores[max(ranked)[2]] if ranked else None


def _link(root: Path, target: Path) -> None:
    """Make `target` a root folder with the same images."""
    for name in _LINKED:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        command = ["cp", "--archive", "--link", str(root / name), str(target / name)]
        subprocess.run(command, check=True, capture_output=True, text=True)
    for name in _DATABASES:
        database = target / name
        database.parent.mkdir(parents=True, exist_ok=True)
        database.unlink(missing_ok=True)
        shutil.copy(root / name, database)


def _fill(store: Store, images: Sequence[Path], programs: Mapping[str, Path]) -> None:
    """Have a containerd of its own, in namespaces of its own, take the archives."""
    request = store.path / "request.json"
    told = {
        "containerd": str(programs["containerd"]),
        "ctr": str(programs["ctr"]),
        "images": [str(image) for image in images],
    }
    request.write_text(json.dumps(told))
    done = subprocess.run(
        ["unshare", *_UNSHARED, sys.executable, "-m", "lab.nodes.filling", str(store.path)],
        env={**os.environ, "PYTHONPATH": str(_PROJECT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        words = done.stderr.strip() or f"exit status {done.returncode}"
        raise NodesError(f"the images of the nodes cannot be unpacked: {words}")
    request.unlink()
