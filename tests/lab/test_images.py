"""Images without a registry: the same bytes every time, kept, imported once into nodes, and stood for."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.images import (
    STAND_IN,
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
from lab.nodes import NodesError, image_store, loading, registry
from lab.nodes.image_store import STORES, Store
from lab.nodes.loading import BLOBS, KNOWN, load
from lab.nodes.registry import Contents
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


def program(path: Path, lines: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def busybox(tmp_path: Path) -> Path:
    return program(tmp_path / "busybox", "printf 'busybox\\ncat\\nsh\\n'")


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


def test_the_stand_in_says_what_it_is_and_ends_when_told_or_at_once_where_a_pod_asks() -> None:
    command = ["sh", str(stand_in_image.PROGRAM), "nfd-worker", "-v"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline().startswith("stand-in image: busybox alone")
            assert waiting.stdout.readline() == "asked to run: nfd-worker -v\n"
            waiting.terminate()
            assert waiting.wait(timeout=60) == 143
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(waiting.pid, signal.SIGKILL)
    for status in (0, 7):
        env = {"PATH": os.environ["PATH"], "STAND_IN_ENDS": str(status)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == status
        assert "stand-in image" in done.stdout


def test_a_shell_that_needs_libraries_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "busybox"
    file.write_bytes(b"\x7fELF\x02" + bytes(400) + b"/lib64/ld-linux-x86-64.so.2\x00")
    with pytest.raises(ToolError, match="wants a static busybox"):
        small.busybox(file, tmp_path)


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
    program(tmp_path / "ldd", f"cat <<'END'\n{LDD}END")
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
    assert programs.LOCK == ROOT / "caas" / "requirements.lock"


def test_the_image_for_proofs_has_their_programs_and_starts_the_right_python() -> None:
    start = "opt/gpu-clusters"
    paths = {entry.path.removeprefix(f"{start}/"): entry for entry in python_image.code()}
    assert {
        "src/gpuclusters/proof/scripts/matmul.py",
        "src/lab/pods/on_processor.py",
        "src/lab/__init__.py",
    } <= set(paths)
    assert paths["bin/python3"].mode == 0o755  # type: ignore[union-attr]
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


_LARGE = bytes(2 << 20)
_PROGRAMS = {"containerd": Path("/tools/containerd-2.4.2/containerd"), "ctr": Path("/tools/ctr")}


@pytest.fixture
def two_layers(tmp_path: Path) -> Image:
    layers = [[File("large", _LARGE)], [File("small", b"small")]]
    return archive.build("lab.local/x:1", layers, Settings(), tmp_path / "images")


class Ctr:
    """A program that notes what it is told, and what is in an archive that it is given."""

    def __init__(self, folder: Path) -> None:
        self._calls = folder / "calls"
        listing = f'[ "$4" = import ] && tar -tf "$6" | sort >"{folder}/listed"'
        says = f'echo "$*" >>"{self._calls}"\n{listing}\nexit 0'
        self.command = [str(program(folder / "ctr", says))]
        self.listed = folder / "listed"

    def calls(self) -> list[str]:
        """Since the last time, without the namespace."""
        said = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [line.removeprefix("--namespace k8s.io images ") for line in said]


def test_an_archive_is_imported_once_and_named_again_when_it_is_another(
    tmp_path: Path, two_layers: Image
) -> None:
    ctr, known = Ctr(tmp_path), tmp_path / KNOWN
    aliases = {"example.com/x@sha256:00": "lab.local/x:1"}
    load(ctr.command, [str(two_layers.archive)], aliases, known)
    imported = f"import --local {two_layers.archive}"
    named = "tag --force lab.local/x:1 example.com/x@sha256:00"
    assert ctr.calls() == [imported, named]
    load(ctr.command, [str(two_layers.archive)], aliases, known)
    assert ctr.calls() == []
    newer = archive.build("lab.local/x:1", [[File("x", b"2")]], Settings(), tmp_path / "images")
    load(ctr.command, [str(newer.archive)], aliases, known)
    # The name means the newer image now: so must what was named after it.
    assert ctr.calls() == [f"import --local {newer.archive}", named]


def test_a_layer_that_containerd_has_is_not_given_again(tmp_path: Path, two_layers: Image) -> None:
    with tarfile.open(two_layers.archive) as tar:
        members = {member.name: member for member in tar}
    (large,) = [name for name, member in members.items() if member.size > len(_LARGE)]
    root = tmp_path / "root"
    (root / BLOBS).mkdir(parents=True)
    (root / BLOBS / Path(large).name).touch()
    ctr = Ctr(tmp_path)
    load(ctr.command, [str(two_layers.archive)], {}, root / KNOWN, root)
    assert set(ctr.listed.read_text().split()) == members.keys() - {large}
    assert [path.name for path in root.iterdir() if path.name != KNOWN] == [BLOBS.split("/")[0]]


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Path]]:
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
    tmp_path: Path, unpacked: list[Sequence[Path]]
) -> None:
    image_store.prepare([Path("/a.tar")], _PROGRAMS, print)
    one, two = (furnished(tmp_path / node / "containerd", "/a.tar") for node in ("1", "2"))
    assert len(unpacked) == 1
    assert (one / BLOBS / "a.tar").samefile(two / BLOBS / "a.tar")
    for name in image_store._DATABASES:
        assert (one / name).read_text() == (two / name).read_text()
        assert not (one / name).samefile(two / name)
    assert json.loads((two / KNOWN).read_text()) == {"images": ["/a.tar"]}
    # A containerd that has something is left alone.
    (tmp_path / "containerd").mkdir()
    furnished(tmp_path / "containerd", "/b.tar")
    assert len(unpacked) == 1
    assert [*(tmp_path / "containerd").iterdir()] == []


def test_another_set_of_images_begins_with_what_it_has_in_common(
    tmp_path: Path, unpacked: list[Sequence[Path]]
) -> None:
    furnished(tmp_path / "caas", "/base.tar", "/caas-1.tar")
    furnished(tmp_path / "small", "/base.tar")
    # Nothing of it is there, but more of its layers may be than in the last one.
    newer = furnished(tmp_path / "newer", "/base.tar", "/caas-2.tar")
    assert (newer / BLOBS / "caas-1.tar").exists()
    # The order in which images are named makes no other set.
    furnished(tmp_path / "again", "/caas-2.tar", "/base.tar")
    assert len(unpacked) == 3


def test_the_last_sets_of_images_are_kept(tmp_path: Path, unpacked: list[Sequence[Path]]) -> None:
    for number in range(STORES + 2):
        image_store.prepare([Path(f"/{number}.tar")], _PROGRAMS, print)
    assert len(stores(tmp_path)) == STORES
    image_store.prepare([Path(f"/{STORES + 1}.tar")], _PROGRAMS, print)
    image_store.prepare([Path("/2.tar")], _PROGRAMS, print)
    assert len(unpacked) == STORES + 2
    image_store.prepare([Path("/0.tar")], _PROGRAMS, print)
    assert len(unpacked) == STORES + 3


def test_where_files_cannot_be_linked_images_are_imported_later(
    tmp_path: Path, unpacked: list[Sequence[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "cp", "echo 'Invalid cross-device link' >&2\nexit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    said: list[str] = []
    target = furnished(tmp_path / "containerd", "/a.tar", report=said.append)
    assert not target.exists()
    assert said[-1] == "images are imported into each node: Invalid cross-device link"


def test_a_containerd_that_does_not_take_the_images_is_an_error(
    tmp_path: Path, two_layers: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    failing = program(tmp_path / "unshare", "echo 'containerd: no space left' >&2\nexit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(subprocess.CalledProcessError):
        loading.run([str(failing)])
    with pytest.raises(NodesError, match=r"cannot be unpacked: .*no space left"):
        image_store.furnish(tmp_path / "containerd", [two_layers.archive], _PROGRAMS, print)
    assert stores(tmp_path) == []


UNKNOWN = "sha256:" + "0" * 64


def ask(path: Path, method: str, target: str) -> tuple[int, httpx.Headers, bytes]:
    """A request over a socket in the file system."""
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://registry") as client:
        answer = client.request(method, target)
    return answer.status_code, answer.headers, answer.content


def image(name: str, folder: Path) -> Image:
    return archive.build(name, [[File("name", name.encode())]], Settings(), folder)


@pytest.fixture
def known(tmp_path: Path) -> Image:
    return image("docker.io/library/known:1", tmp_path)


@pytest.fixture
def stand_in(tmp_path: Path) -> Image:
    return image(STAND_IN, tmp_path)


@pytest.fixture
def contents(known: Image, stand_in: Image) -> Iterator[Contents]:
    made = Contents([known.archive, stand_in.archive])
    yield made
    made.close()


def test_a_name_that_no_archive_has_means_the_stand_in_and_what_an_archive_has_is_itself(
    contents: Contents, known: Image, stand_in: Image
) -> None:
    for name, reference, meant in (
        ("registry.k8s.io/sig-storage/nfsplugin", "v4.13.5", stand_in.digest),
        ("docker.io/library/known", "2", stand_in.digest),
        ("quay.io/known", "1", stand_in.digest),
        ("localhost:5000/x", "latest", stand_in.digest),
        ("docker.io/library/known", "1", known.digest),
        ("any.example.com/x", known.digest, known.digest),
        # A digest and a name of the lab are not stood for.
        ("quay.io/x", UNKNOWN, None),
        ("lab.local/bsybox", "1", None),
    ):
        found = contents.manifest(name, reference)
        assert (found and found[0]) == meant, name


def test_without_a_stand_in_a_name_is_not_found(known: Image) -> None:
    contents = Contents([known.archive])
    assert contents.manifest("quay.io/x", "1") is None
    contents.close()


def test_a_client_gets_all_of_the_stand_in_and_a_reason_for_what_it_does_not_get(
    tmp_path: Path, stand_in: Image
) -> None:
    path = tmp_path / "registry"
    with registry.serving(str(path), [stand_in.archive]) as contents:
        # What was given stays, also when a newer image has taken its place in the cache.
        stand_in.archive.unlink()
        status, headers, body = ask(path, "GET", "/v2/nfs/manifests/v1?ns=registry.k8s.io")
        assert (status, headers["Docker-Content-Digest"]) == (200, stand_in.digest)
        status, asked, nothing = ask(path, "HEAD", "/v2/nfs/manifests/v1?ns=registry.k8s.io")
        assert (status, nothing) == (200, b"")
        assert asked["Content-Length"] == headers["Content-Length"] == str(len(body))
        for described in (json.loads(body)["config"], *json.loads(body)["layers"]):
            blob = ask(path, "GET", f"/v2/nfs/blobs/{described['digest']}?ns=registry.k8s.io")[2]
            assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == described["digest"]
        status, _, body = ask(path, "GET", f"/v2/x/manifests/{UNKNOWN}?ns=lab.example.com")
        assert status == 404
        assert "needs an archive or an alias" in json.loads(body)["errors"][0]["message"]
        later = image("docker.io/library/later:1", tmp_path)
        contents.add(later.archive)
        target = "/v2/library/later/manifests/1?ns=docker.io"
        assert ask(path, "HEAD", target)[1]["Docker-Content-Digest"] == later.digest
