"""Images without a registry: the same bytes every time."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.images import (
    archive,
    bytecode,
    interpreter,
    keeping,
    layer,
    packages,
    programs,
    python_image,
    small,
    stand_in_image,
)
from lab.images.archive import Image, Settings
from lab.images.layer import Entry, File, Folder, Link
from lab.tools import ToolError

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


def configured(image: Image) -> dict[str, Any]:
    """How containers of the image start."""
    manifest, blobs = read(image)
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    return dict(config["config"])


def links_of(image: Image) -> dict[str, str]:
    """Symbolic links of its only layer."""
    manifest, blobs = read(image)
    data = blobs[manifest["layers"][0]["digest"].removeprefix("sha256:")]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: member.linkname for member in tar if member.issym()}


@pytest.fixture
def busybox(tmp_path: Path) -> Path:
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\nprintf 'busybox\\ncat\\nsh\\n'\n")
    program.chmod(0o755)
    return program


def test_a_layer_depends_on_its_content_and_on_neither_order_nor_machine(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF program")
    os.utime(program, (1, 1))
    program.chmod(0o600)
    other = [File("opt/b/program", program, 0o755), *reversed(ENTRIES[1:])]
    assert written(other) == written(ENTRIES)
    for changed in (File("etc/passwd", b"toor"), File("etc/passwd", b"root", 0o755)):
        assert written([changed, *ENTRIES[2:], ENTRIES[0]])[1] != written(ENTRIES)[1]
    with pytest.raises(ValueError, match="two entries /etc/passwd"):
        written([File("etc/passwd", b"a"), File("/etc/passwd", b"b")])


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
    other = archive.build("lab.local/y:1", [ENTRIES], Settings(), tmp_path / "1")
    assert other.digest == first.digest
    for image in (first, other):
        read(image)
    assert other.archive != first.archive


def test_an_image_is_what_its_index_says(tmp_path: Path) -> None:
    settings = Settings(command=("/opt/b/program",), environment={"B": "2", "A": "1"}, user="9")
    image = archive.build("lab.local/x:1", [ENTRIES[:1], ENTRIES[1:]], settings, tmp_path)
    manifest, blobs = read(image)
    config = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["config"] == configured(image)
    assert config["config"]["Cmd"] == ["/opt/b/program"]
    assert config["config"]["Env"] == ["A=1", "B=2"]
    assert config["config"]["User"] == "9"
    assert "Entrypoint" not in config["config"]
    assert config["rootfs"]["diff_ids"] == [item["digest"] for item in manifest["layers"]]
    for item in manifest["layers"]:
        assert len(blobs[item["digest"].removeprefix("sha256:")]) == item["size"]


def test_the_stand_in_runs_its_program_whatever_a_chart_calls(
    busybox: Path, tmp_path: Path
) -> None:
    shell = small.busybox(busybox, tmp_path / "images")
    assert links_of(shell) == {"bin/cat": "busybox", "bin/sh": "busybox"}
    image = stand_in_image.image(busybox, tmp_path / "images")
    assert configured(image)["Entrypoint"] == ["/bin/stand-in"]
    links = links_of(image)
    assert links["usr/bin/kata-deploy"] == "/bin/stand-in"
    assert links["bin/cat"] == "busybox"


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    command = ["sh", str(stand_in_image.PROGRAM), "nfd-worker", "-v"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def test_the_stand_in_says_what_it_is_and_ends_when_told(waiting: subprocess.Popen[str]) -> None:
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith("stand-in image: busybox alone")
    assert waiting.stdout.readline() == "asked to run: nfd-worker -v\n"
    waiting.terminate()
    assert waiting.wait(timeout=60) == 143


@pytest.mark.parametrize("status", [0, 7])
def test_the_stand_in_ends_at_once_where_a_pod_asks_for_that(status: int) -> None:
    done = subprocess.run(
        ["sh", str(stand_in_image.PROGRAM)],
        env={"PATH": os.environ["PATH"], "STAND_IN_ENDS": str(status)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status
    assert "stand-in image" in done.stdout


def test_a_shell_that_needs_libraries_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_bytes(b"\x7fELF\x02" + bytes(400) + b"/lib64/ld-linux-x86-64.so.2\x00")
    with pytest.raises(ToolError, match="wants a static busybox"):
        small.busybox(program, tmp_path)


LDD = """\
/usr/bin/python3:
\tlinux-vdso.so.1 (0x00007fff)
\tlibpython3.11.so.1.0 => /opt/lib/libpython3.11.so.1.0 (0x0000)
\tlibz.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x0000)
/usr/lib/one.so:
\tstatically linked
"""


def test_libraries_are_read_from_what_ldd_says_and_one_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert interpreter.parse(LDD) == [
        ("libpython3.11.so.1.0", Path("/opt/lib/libpython3.11.so.1.0")),
        ("libz.so.1", None),
        ("/lib64/ld-linux-x86-64.so.2", Path("/lib64/ld-linux-x86-64.so.2")),
    ]
    program = tmp_path / "ldd"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LDD}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ToolError, match=r"libz\.so\.1"):
        interpreter.libraries([Path("/usr/bin/python3")])


def filled(folder: Path, *files: str) -> Path:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def test_what_differs_between_machines_is_in_no_layer_of_packages(tmp_path: Path) -> None:
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


def test_bytecode_is_the_same_each_time_and_whatever_the_times_of_files(tmp_path: Path) -> None:
    source = "NAMES = {'a', 'b', 'c', 'd'}\ndef f(x):\n    return x in {'p', 'q', 'r', 's'}\n"
    layers = []
    for number in ("1", "2"):
        folder = filled(tmp_path / number, "jwt/__init__.py")
        (folder / "jwt" / "__init__.py").write_text(source)
        os.utime(folder / "jwt" / "__init__.py", (int(number), int(number)))
        bytecode.compile_all(folder, packages.target())
        layers.append([*packages.entries(folder)])
    assert len(layers[0]) == 2
    assert written(layers[0]) == written(layers[1])


def test_the_image_of_our_programs_has_what_they_import_and_no_lab() -> None:
    paths = {entry.path for entry in programs.code()}
    start = "opt/gpu-clusters/src"
    assert f"{start}/caas/device_plugin/__main__.py" in paths
    assert f"{start}/gpuclusters/__init__.py" in paths
    assert f"{start}/gpuclusters/lease/decide.py" in paths
    assert f"{start}/gpuclusters/cdi/decide.py" not in paths
    assert {path.removeprefix(f"{start}/").split("/")[0] for path in paths} == {
        "caas",
        "gpuclusters",
    }
    assert not [path for path in paths if "__pycache__" in path or "/config/" in path]


def test_the_image_of_our_programs_is_set_up_as_the_dockerfile_says() -> None:
    text = (ROOT / "caas" / "Dockerfile").read_text()
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        assert f"{name}={programs.SETTINGS.environment[name]}" in text
    assert f"USER {programs.SETTINGS.user}" in text
    assert programs.SETTINGS.environment["PATH"].startswith("/opt/gpu-clusters/bin:")
    assert f"CMD {json.dumps(list(programs.SETTINGS.command))}" in text
    assert programs.LOCK == ROOT / "caas" / "requirements.lock"


def test_the_image_for_proofs_has_their_programs_and_starts_the_right_python() -> None:
    paths = {entry.path: entry for entry in python_image.code()}
    start = "opt/gpu-clusters"
    for name in (
        "gpuclusters/proof/scripts/matmul.py",
        "lab/pods/on_processor.py",
        "lab/__init__.py",
    ):
        assert f"{start}/src/{name}" in paths
    assert paths[f"{start}/bin/python3"].mode == 0o755  # type: ignore[union-attr]
    # Programs call it by name.
    assert python_image.SETTINGS.environment["PATH"].startswith(f"/{start}/bin:")
    assert not [path for path in paths if "/lab/hosts/" in path]


def test_an_image_changes_with_our_code_and_with_nothing_else(tmp_path: Path) -> None:
    code = [File("a.py", filled(tmp_path / "1", "a.py") / "a.py")]
    keys = [programs.key("x", code, tmp_path, tmp_path)]
    os.utime(tmp_path / "1" / "a.py", (7, 7))
    keys.append(programs.key("x", code, tmp_path, tmp_path))
    (tmp_path / "1" / "a.py").write_text("other")
    keys.append(programs.key("x", code, tmp_path, tmp_path))
    assert keys[0] == keys[1] != keys[2]


def test_the_last_three_images_of_a_kind_are_kept(tmp_path: Path) -> None:
    kind = "caas"
    with keeping.shelf(print, tmp_path) as kept:

        def made(number: int) -> Image:
            entries = [File("number", str(number).encode())]

            def build() -> Image:
                return archive.build("lab.local/x:1", [entries], Settings(), tmp_path)

            return kept.image(kind, f"k{number}", build)

        other = kept.layer(kind, "k0", lambda: ENTRIES)
        images = [made(0), made(1), made(2)]
        # Used again: now the second one is the oldest.
        assert made(0) == images[0]
        images.append(made(3))
        assert [image.archive.exists() for image in images] == [True, False, True, True]
        assert other.file.exists()
        assert len([*tmp_path.glob(f"{kind}-*.json")]) == 3


def test_an_image_of_an_older_release_goes_too(tmp_path: Path) -> None:
    for number in range(3):
        digest = f"{number}" * 64
        (tmp_path / f"{digest}.tar").write_text("image")
        record = tmp_path / f"caas-{number}.json"
        record.write_text(json.dumps({"name": "x", "digest": f"sha256:{digest}"}))
        os.utime(record, (number, number))
    (tmp_path / "other.tar").write_text("of somebody else")
    with keeping.shelf(print, tmp_path) as kept:
        kept.image(
            "caas", "new", lambda: archive.build("lab.local/x:1", [ENTRIES], Settings(), tmp_path)
        )
    assert not (tmp_path / f"{'0' * 64}.tar").exists()
    assert (tmp_path / f"{'1' * 64}.tar").exists()
    assert (tmp_path / "other.tar").exists()
