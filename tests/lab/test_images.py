"""Images without a registry: the same bytes every time, kept, imported once into nodes, and stood for."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.images import (
    STAND_IN,
    archive,
    bytecode,
    keeping,
    layer,
    packages,
    programs,
    python_image,
)
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, Folder, Link
from lab.nodes import NodesError, image_store, loading
from lab.nodes.loading import KNOWN, load
from lab.nodes.registry import Contents
from tests.lab.test_tools import script

ROOT = Path(__file__).resolve().parents[2]
ENTRIES: list[Entry] = [
    File("opt/b/program", b"\x7fELF program", 0o755),
    File("etc/passwd", b"root"),
    Link("bin/sh", "program"),
    Folder("tmp", 0o1777),
]


def written(entries: list[Entry]) -> tuple[bytes, str]:
    out = io.BytesIO()
    digest = layer.write(entries, out)
    return out.getvalue(), digest


def test_a_layer_depends_on_its_content_and_on_neither_order_nor_machine(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"\x7fELF program")
    os.utime(file, (1, 1))
    file.chmod(0o600)
    other = [File("opt/b/program", file, 0o755), *reversed(ENTRIES[1:])]
    assert written(other) == written(ENTRIES)
    for changed in (File("etc/passwd", b"toor"), File("etc/passwd", b"root", 0o755)):
        assert written([changed, *ENTRIES[2:], ENTRIES[0]])[1] != written(ENTRIES)[1]
    with pytest.raises(ValueError, match="two entries /etc/passwd"):
        written([File("etc/passwd", b"a"), File("/etc/passwd", b"b")])


def test_an_image_built_twice_has_one_digest_and_is_written_once(tmp_path: Path) -> None:
    first = archive.build("lab.local/x:1", [ENTRIES], Settings(), tmp_path / "1")
    written_at = first.archive.stat().st_ino
    assert archive.build("lab.local/x:1", [ENTRIES], Settings(), tmp_path / "1") == first
    assert first.archive.stat().st_ino == written_at
    assert [*(tmp_path / "1").iterdir()] == [first.archive]
    with keeping.shelf(print, tmp_path / "kept") as kept:
        layer = kept.layer("system", "a1", lambda: ENTRIES)
        layer.file.unlink()
        assert kept.layer("system", "a1", lambda: ENTRIES) == layer, "its file was gone"
    for number, layers in enumerate(([ENTRIES], [layer])):
        again = archive.build("lab.local/x:1", layers, Settings(), tmp_path / f"again-{number}")
        assert again.digest == first.digest
        assert again.archive.read_bytes() == first.archive.read_bytes()


def filled(folder: Path, *files: str) -> Path:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def test_layers_of_packages_and_bytecode_are_the_same_on_every_machine(tmp_path: Path) -> None:
    shared = ("jwt/__init__.py", "jwt-1.dist-info/METADATA")
    own = (
        "jwt-1.dist-info/RECORD",
        "jwt-1.dist-info/direct_url.json",
        "jwt/__pycache__/__init__.cpython-311.pyc",
        "jwt/tests/test_it.py",
    )
    one = filled(tmp_path / "1", *shared, *own)
    other = filled(tmp_path / "2", *reversed(shared))
    for path in other.rglob("*"):
        os.utime(path, (7, 7))
    assert written([*packages.entries(one)]) == written([*packages.entries(other)])
    paths = {entry.path for entry in packages.entries(one)}
    assert paths == {f"{packages.target()}/{name}" for name in shared}
    source = "NAMES = {'a', 'b', 'c', 'd'}\ndef f(x):\n    return x in {'p', 'q', 'r', 's'}\n"
    for number, folder in enumerate((one, other)):
        (folder / "jwt/__init__.py").write_text(source)
        os.utime(folder / "jwt/__init__.py", (number, number))
        bytecode.compile_all(folder, packages.target())
    layers = [[*packages.entries(folder)] for folder in (one, other)]
    assert len(layers[0]) == 3
    assert written(layers[0]) == written(layers[1])


def test_the_image_of_our_programs_has_what_they_import_as_the_dockerfile_says() -> None:
    start = "opt/gpu-clusters/src"
    paths = {entry.path.removeprefix(f"{start}/") for entry in programs.code()}
    assert {
        "caas/device_plugin/__main__.py",
        "gpuclusters/__init__.py",
        "gpuclusters/lease/decide.py",
    } <= paths
    assert "gpuclusters/cdi/decide.py" not in paths
    assert {path.split("/")[0] for path in paths} == {"caas", "gpuclusters"}
    assert not [path for path in paths if "__pycache__" in path or "/config/" in path]
    text = (ROOT / "caas" / "Dockerfile").read_text()
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        assert f"{name}={programs.SETTINGS.environment[name]}" in text
    assert f"USER {programs.SETTINGS.user}" in text
    assert programs.SETTINGS.environment["PATH"].startswith("/opt/gpu-clusters/bin:")
    assert f"CMD {json.dumps(list(programs.SETTINGS.command))}" in text
    proofs = {entry.path.removeprefix("opt/gpu-clusters/") for entry in python_image.code()}
    assert {"src/gpuclusters/proof/scripts/matmul.py", "src/lab/pods/on_processor.py"} <= proofs
    assert not [path for path in proofs if "/lab/hosts/" in path]


def test_an_image_changes_with_our_code_and_with_nothing_else(tmp_path: Path) -> None:
    file, keys = tmp_path / "a.py", []
    for text, when in (("one", 1), ("one", 7), ("other", 7)):
        file.write_text(text)
        os.utime(file, (when, when))
        keys.append(programs.key("x", [File("a.py", file)], tmp_path / "1", tmp_path / "1"))
    assert keys[0] == keys[1] != keys[2]


def test_the_last_three_images_of_a_kind_are_kept(tmp_path: Path) -> None:
    kind = "caas"
    with keeping.shelf(print, tmp_path) as kept:

        def made(number: int) -> Image:
            content = str(number).encode()
            return kept.image(kind, f"k{number}", lambda: image("lab.local/x:1", tmp_path, content))

        other = kept.layer(kind, "k0", lambda: ENTRIES)
        images = [made(0), made(1), made(2)]
        # Used again: now the second one is the oldest.
        assert made(0) == images[0]
        images.append(made(3))
        assert [image.archive.exists() for image in images] == [True, False, True, True]
        assert other.file.exists()
        assert len([*tmp_path.glob(f"{kind}-*.json")]) == 3


_PROGRAMS = {"containerd": Path("/tools/containerd-2.4.2/containerd"), "ctr": Path("/tools/ctr")}


def image(name: str, folder: Path, content: bytes = b"") -> Image:
    return archive.build(name, [[File("name", content or name.encode())]], Settings(), folder)


def test_an_archive_is_imported_once_and_named_again_when_it_is_another(tmp_path: Path) -> None:
    noted, known = tmp_path / "calls", tmp_path / KNOWN
    ctr = str(script(tmp_path / "ctr", f'echo "$*" >>"{noted}"'))
    first, newer = (
        image("lab.local/x:1", tmp_path / "images", content) for content in (b"1", b"2")
    )
    # In the end the name means the newer image: so must what was named after it.
    for given in (first, first, newer):
        aliases = {"example.com/x@sha256:00": "lab.local/x:1"}
        load([ctr], [str(given.archive)], aliases, known)
    named = "tag --force lab.local/x:1 example.com/x@sha256:00"
    imported = (f"import --local {one.archive}" for one in (first, newer))
    calls = noted.read_text().replace("--namespace k8s.io images ", "").splitlines()
    assert calls == [line for one in imported for line in (one, named)]


def test_a_containerd_that_does_not_take_the_images_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = image("lab.local/x:1", tmp_path).archive
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    failing = script(tmp_path / "unshare", "echo 'containerd: no space left' >&2\nexit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(subprocess.CalledProcessError):
        loading.run([str(failing)])
    with pytest.raises(NodesError, match=r"cannot be unpacked: .*no space left"):
        image_store.furnish(tmp_path / "containerd", [given], _PROGRAMS, print)
    assert [*(tmp_path / "cache/gpu-clusters/stores").glob("store-*")] == []


UNKNOWN = "sha256:" + "0" * 64


def test_a_name_that_no_archive_has_means_the_stand_in_and_what_an_archive_has_is_itself(
    tmp_path: Path,
) -> None:
    stand_in = image(STAND_IN, tmp_path)
    known = image("docker.io/library/known:1", tmp_path)
    with contextlib.closing(Contents([known.archive, stand_in.archive])) as contents:
        for name, reference, meant in (
            ("registry.k8s.io/sig-storage/nfsplugin", "v4.13.5", stand_in.digest),
            ("docker.io/library/known", "2", stand_in.digest),
            ("localhost:5000/x", "latest", stand_in.digest),
            ("docker.io/library/known", "1", known.digest),
            ("any.example.com/x", known.digest, known.digest),
            # A digest and a name of the lab are not stood for.
            ("quay.io/x", UNKNOWN, None),
            ("lab.local/bsybox", "1", None),
        ):
            found = contents.manifest(name, reference)
            assert (found and found[0]) == meant, name
    with contextlib.closing(Contents([known.archive])) as contents:
        assert contents.manifest("quay.io/x", "1") is None
