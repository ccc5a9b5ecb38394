"""Images without a registry: the same bytes every time."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lab.images import archive, layer, small
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, Folder, Link
from lab.tools import ToolError

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


def read(image: Image) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and all blobs by digest, each checked."""
    with tarfile.open(image.archive) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    blobs = {name.split("/")[-1]: data for name, data in files.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in blobs.items())
    described = json.loads(files["index.json"])["manifests"][0]
    assert described["digest"] == image.digest
    assert described["annotations"]["io.containerd.image.name"] == image.name
    return json.loads(blobs[image.digest.removeprefix("sha256:")]), blobs


def test_a_layer_does_not_depend_on_order_or_machine(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF program")
    os.utime(program, (1, 1))
    program.chmod(0o600)
    other = [File("opt/b/program", program, 0o755), *reversed(ENTRIES[1:])]
    assert written(other) == written(ENTRIES)


def test_a_layer_changes_with_its_content() -> None:
    changed = [File("etc/passwd", b"toor"), *ENTRIES[2:], ENTRIES[0]]
    assert written(changed)[1] != written(ENTRIES)[1]
    executable = [File("etc/passwd", b"root", 0o755), *ENTRIES[2:], ENTRIES[0]]
    assert written(executable)[1] != written(ENTRIES)[1]


def test_a_layer_has_the_folders_of_its_files_and_belongs_to_root() -> None:
    data, digest = written(ENTRIES)
    assert hashlib.sha256(data).hexdigest() == digest
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = {member.name: member for member in tar}
    assert list(members) == sorted(members)
    assert members["opt/b"].isdir()
    assert members["tmp"].mode == 0o1777
    assert members["bin/sh"].linkname == "program"
    assert {(m.uid, m.gid, m.mtime, m.uname) for m in members.values()} == {(0, 0, 0, "")}


def test_two_entries_of_one_path_are_refused() -> None:
    with pytest.raises(ValueError, match="two entries /etc/passwd"):
        written([File("etc/passwd", b"a"), File("/etc/passwd", b"b")])


def test_an_image_built_twice_has_one_digest(tmp_path: Path) -> None:
    settings = Settings(command=("/opt/b/program",), environment={"B": "2", "A": "1"})
    first = archive.build("lab.local/x:1", [ENTRIES], settings, tmp_path / "1")
    second = archive.build("lab.local/x:1", [ENTRIES], settings, tmp_path / "2")
    assert first.digest == second.digest
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert [path.name for path in (tmp_path / "1").iterdir()] == [
        f"{first.digest.removeprefix('sha256:')}.tar"
    ]


def test_an_image_is_what_its_index_says(tmp_path: Path) -> None:
    settings = Settings(command=("/opt/b/program",), environment={"B": "2", "A": "1"}, user="9")
    image = archive.build("lab.local/x:1", [ENTRIES[:1], ENTRIES[1:]], settings, tmp_path)
    manifest, blobs = read(image)
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["config"]["Cmd"] == ["/opt/b/program"]
    assert config["config"]["Env"] == ["A=1", "B=2"]
    assert config["config"]["User"] == "9"
    assert config["rootfs"]["diff_ids"] == [item["digest"] for item in manifest["layers"]]
    for item in manifest["layers"]:
        assert len(blobs[item["digest"].removeprefix("sha256:")]) == item["size"]


def test_an_image_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    first = archive.build("lab.local/x:1", [ENTRIES], Settings(), tmp_path)
    before = first.archive.stat().st_ino
    assert archive.build("lab.local/x:1", [ENTRIES], Settings(), tmp_path) == first
    assert first.archive.stat().st_ino == before


def test_the_shell_image_has_a_link_for_every_tool(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\nprintf 'busybox\\ncat\\nsh\\n'\n")
    program.chmod(0o755)
    manifest, blobs = read(small.busybox(program, tmp_path / "images"))
    data = blobs[manifest["layers"][0]["digest"].removeprefix("sha256:")]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        links = {member.name: member.linkname for member in tar if member.issym()}
    assert links == {"bin/cat": "busybox", "bin/sh": "busybox"}


def test_a_shell_that_needs_libraries_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF\x02" + bytes(400) + b"/lib64/ld-linux-x86-64.so.2\x00")
    with pytest.raises(ToolError, match="wants a static busybox"):
        small.busybox(program, tmp_path)
