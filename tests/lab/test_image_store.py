"""How containerd of a real node gets its images: imported once, then linked. Without a containerd."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from lab.images import archive
from lab.images.archive import Image, Settings
from lab.images.layer import File
from lab.nodes import NodesError, image_store, loading
from lab.nodes.image_store import STORES, Store
from lab.nodes.loading import BLOBS, KNOWN, load

_LARGE = bytes(2 << 20)
_PROGRAMS = {"containerd": Path("/tools/containerd-2.4.2/containerd"), "ctr": Path("/tools/ctr")}


@pytest.fixture
def image(tmp_path: Path) -> Image:
    layers = [[File("large", _LARGE)], [File("small", b"small")]]
    return archive.build("lab.local/x:1", layers, Settings(), tmp_path / "images")


class Ctr:
    """A program that notes what it is told, and what is in an archive that it is given."""

    def __init__(self, folder: Path) -> None:
        self._calls = folder / "calls"
        self.command = [str(folder / "ctr")]
        program = folder / "ctr"
        listing = f'[ "$4" = import ] && tar -tf "$6" | sort >"{folder}/listed"'
        program.write_text(f'#!/bin/sh\necho "$*" >>"{self._calls}"\n{listing}\nexit 0\n')
        program.chmod(0o755)
        self.listed = folder / "listed"

    def calls(self) -> list[str]:
        """Since the last time, without the namespace."""
        said = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [line.removeprefix("--namespace k8s.io images ") for line in said]


def test_an_archive_is_imported_once_and_named_again_when_it_is_another(
    tmp_path: Path, image: Image
) -> None:
    ctr, known = Ctr(tmp_path), tmp_path / KNOWN
    aliases = {"example.com/x@sha256:00": "lab.local/x:1"}
    load(ctr.command, [str(image.archive)], aliases, known)
    imported = f"import --local {image.archive}"
    named = "tag --force lab.local/x:1 example.com/x@sha256:00"
    assert ctr.calls() == [imported, named]
    load(ctr.command, [str(image.archive)], aliases, known)
    assert ctr.calls() == []
    newer = archive.build("lab.local/x:1", [[File("x", b"2")]], Settings(), tmp_path / "images")
    load(ctr.command, [str(newer.archive)], aliases, known)
    # The name means the newer image now: so must what was named after it.
    assert ctr.calls() == [f"import --local {newer.archive}", named]


def test_a_layer_that_containerd_has_is_not_given_again(tmp_path: Path, image: Image) -> None:
    with tarfile.open(image.archive) as tar:
        members = {member.name: member for member in tar}
    (large,) = [name for name, member in members.items() if member.size > len(_LARGE)]
    root = tmp_path / "root"
    (root / BLOBS).mkdir(parents=True)
    (root / BLOBS / Path(large).name).touch()
    ctr = Ctr(tmp_path)
    load(ctr.command, [str(image.archive)], {}, root / KNOWN, root)
    assert set(ctr.listed.read_text().split()) == members.keys() - {large}
    assert [path.name for path in root.iterdir() if path.name != KNOWN] == [BLOBS.split("/")[0]]


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Path]]:
    """What was asked to be unpacked, each time; a store is then what containerd would leave."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked: list[Sequence[Path]] = []

    def fill(store: Store, images: Sequence[Path], programs: Mapping[str, Path]) -> None:
        asked.append(images)
        for name in (*image_store._DATABASES, *(f"{BLOBS}/{one.name}" for one in images)):
            file = store.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
        store.known.write_text(json.dumps({"images": [str(one) for one in images]}))

    monkeypatch.setattr(image_store, "_fill", fill)
    return asked


def stores(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "cache" / "gpu-clusters" / "stores").glob("store-*")]


def furnished(target: Path, *names: str, report: Callable[[str], None] = print) -> Path:
    image_store.furnish(target, [Path(name) for name in names], _PROGRAMS, report)
    return target


def test_nodes_share_the_files_of_images_and_no_database(
    tmp_path: Path, filled: list[Sequence[Path]]
) -> None:
    image_store.prepare([Path("/a.tar")], _PROGRAMS, print)
    one, two = (furnished(tmp_path / node / "containerd", "/a.tar") for node in ("1", "2"))
    assert len(filled) == 1
    assert (one / BLOBS / "a.tar").samefile(two / BLOBS / "a.tar")
    for name in image_store._DATABASES:
        assert (one / name).read_text() == (two / name).read_text()
        assert not (one / name).samefile(two / name)
    assert json.loads((two / KNOWN).read_text()) == {"images": ["/a.tar"]}
    # A containerd that has something is left alone.
    (tmp_path / "containerd").mkdir()
    furnished(tmp_path / "containerd", "/b.tar")
    assert len(filled) == 1
    assert [*(tmp_path / "containerd").iterdir()] == []


def test_another_set_of_images_begins_with_what_it_has_in_common(
    tmp_path: Path, filled: list[Sequence[Path]]
) -> None:
    furnished(tmp_path / "caas", "/base.tar", "/caas-1.tar")
    furnished(tmp_path / "small", "/base.tar")
    # Nothing of it is there, but more of its layers may be than in the last one.
    newer = furnished(tmp_path / "newer", "/base.tar", "/caas-2.tar")
    assert (newer / BLOBS / "caas-1.tar").exists()
    # The order in which images are named makes no other set.
    furnished(tmp_path / "again", "/caas-2.tar", "/base.tar")
    assert len(filled) == 3


def test_the_last_sets_of_images_are_kept(tmp_path: Path, filled: list[Sequence[Path]]) -> None:
    for number in range(STORES + 2):
        image_store.prepare([Path(f"/{number}.tar")], _PROGRAMS, print)
    assert len(stores(tmp_path)) == STORES
    image_store.prepare([Path(f"/{STORES + 1}.tar")], _PROGRAMS, print)
    image_store.prepare([Path("/2.tar")], _PROGRAMS, print)
    assert len(filled) == STORES + 2
    image_store.prepare([Path("/0.tar")], _PROGRAMS, print)
    assert len(filled) == STORES + 3


def test_where_files_cannot_be_linked_images_are_imported_later(
    tmp_path: Path, filled: list[Sequence[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "cp"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Invalid cross-device link' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    said: list[str] = []
    target = furnished(tmp_path / "containerd", "/a.tar", report=said.append)
    assert not target.exists()
    assert said[-1] == "images are imported into each node: Invalid cross-device link"


def test_a_containerd_that_does_not_take_the_images_is_an_error(
    tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "unshare"
    program.write_text("#!/bin/sh\necho 'containerd does not start: no space left' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(subprocess.CalledProcessError):
        loading.run([str(program)])
    with pytest.raises(NodesError, match=r"cannot be unpacked: .*no space left"):
        image_store.furnish(tmp_path / "containerd", [image.archive], _PROGRAMS, print)
    assert stores(tmp_path) == []
