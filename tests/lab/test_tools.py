"""Where a tool of the lab comes from: PATH, the cache, a verified download, a build, a Debian package."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import subprocess
import tarfile
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.tools import debian_packages
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, Platform, Release, Tool
from lab.tools.download import NetworkError, download, find_checksum, open_url
from lab.tools.model import Report, ToolError
from lab.tools.resolver import Resolver

PLATFORM = Platform("linux", "amd64")


def script(path: Path, lines: str) -> Path:
    """A program of these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(lines)}\n")
    path.chmod(0o755)
    return path


class World:
    """A cache, a PATH whose first folder is empty, and what stands for Go and for official releases.

    The programs that they make know their version.
    """

    def __init__(self, folder: Path) -> None:
        self.cache = ToolCache(folder / "tools")
        self.path = folder / "bin"
        self.said: list[str] = []
        self.built: list[list[str]] = []
        self.downloaded: list[str] = []
        self.released: Sequence[str] = ()
        self.version: str | None = None
        self.no_download: ToolError | None = None
        self.while_building: Callable[[], object] = lambda: None

    def build(self, tools: Sequence[Tool], target: Path, report: Report) -> Mapping[str, Path]:
        self.built.append([tool.name for tool in tools])
        report(f"building {len(tools)}")
        made = {
            t.name: script(target / t.name, f"echo v{self.version or t.version}") for t in tools
        }
        self.while_building()
        return made

    def download(self, tool: Tool, platform: Platform, folder: Path) -> Path | None:
        self.downloaded.append(tool.name)
        if self.no_download:
            raise self.no_download
        if tool.name not in self.released:
            return None
        return script(folder / tool.name, f"echo v{tool.version}")

    def ensure(
        self, *names: str, offline: bool = False, report: Report | None = None
    ) -> Mapping[str, Path]:
        ways = {"download": self.download, "build": self.build}
        resolver = Resolver(cache=self.cache, platform=PLATFORM, offline=offline, **ways)
        return resolver.ensure([*names], report or self.said.append)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    made.path.mkdir()
    monkeypatch.setenv("PATH", f"{made.path}:/nowhere")
    return made


def test_a_tool_on_path_of_the_right_minor_version_is_used_and_named(world: World) -> None:
    program = script(world.path / "kube-apiserver", "echo Kubernetes v1.36.0")
    assert world.ensure("kube-apiserver") == {"kube-apiserver": program}
    assert world.built == []
    assert world.said == [f"using kube-apiserver 1.36.0 from PATH ({program})"]


@pytest.mark.parametrize(
    ("name", "says", "told"),
    [
        ("kubectl", "v1.32.4", "it is kubectl 1.32.4"),
        ("helm", "v3.19.0", "it is helm 3.19.0"),
        ("etcd", "command not found", "it is etcd of an unknown version"),
        ("etcd", "etcd Version: 3.60.1", "it is etcd 3.60.1"),
    ],
)
def test_a_tool_on_path_of_another_version_is_not_used_and_the_user_is_told(
    world: World, name: str, says: str, told: str
) -> None:
    program = script(world.path / name, f"echo {says}")
    assert world.ensure(name)[name].is_relative_to(world.cache.folder)
    assert f"not using {program}: {told}" in world.said[0]
    assert TOOLS[name].accepted in world.said[0]


@pytest.mark.parametrize(
    ("fails", "asked", "built", "told"),
    [
        (None, "etcd helm", "helm", "downloaded etcd 3.6.14, checksum verified"),
        # After the first network failure no other download is tried.
        (
            NetworkError("https://example.test cannot be reached"),
            *("etcd", "etcd helm", "no downloads on this machine"),
        ),
        (
            ToolError("https://x/etcd has SHA-256 ab, expected cd"),
            *("etcd helm", "etcd helm", "has SHA-256 ab, expected cd; building etcd instead"),
        ),
    ],
    ids=["there", "no network", "another checksum"],
)
def test_a_download_is_preferred_to_a_build(
    world: World, fails: ToolError | None, asked: str, built: str, told: str
) -> None:
    world.released, world.no_download = ["etcd"], fails
    found = world.ensure("etcd", "helm")
    assert world.downloaded == asked.split()
    assert world.built == [[name] for name in built.split()]
    assert sum(told in line for line in world.said) == 1
    if fails is None:
        assert (found["etcd"].parent / "origin").read_text() == "official download\n"


def test_a_program_of_another_version_or_of_an_interrupted_build_is_never_cached(
    world: World,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    world.version = "0.0.0"
    with pytest.raises(ToolError, match=r"says it is version 0\.0\.0, not 1\.36\.3"):
        world.ensure("kube-apiserver")
    world.version, world.while_building = None, interrupt
    with pytest.raises(KeyboardInterrupt):
        world.ensure("kube-apiserver")
    assert [p.name for p in world.cache.folder.iterdir()] == [".lock"]


def test_two_at_the_same_time_build_once_and_the_second_says_what_it_waits_for(
    world: World,
) -> None:
    building, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        building.set()
        assert go_on.wait(60)

    def waits(line: str) -> None:
        world.said.append(line)
        go_on.set()

    world.while_building = slowly
    with ThreadPoolExecutor(1) as others:
        first = others.submit(world.ensure, "etcd", report=print)
        assert building.wait(60)
        assert world.ensure("etcd", report=waits) == first.result(60)
    assert world.built == [["etcd"]]
    assert world.said[0].startswith("waiting for process ")


PROGRAM = b"the program"
URL = "https://releases.test/v{version}/{os}/{arch}/etcd"
FETCHED = "https://releases.test/v3.6.14/linux/amd64/etcd"
PACKED = "https://releases.test/etcd.tar.gz"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


DIGEST = sha256(PROGRAM)


def tool(release: Release | None) -> Tool:
    return dataclasses.replace(TOOLS["etcd"], release=release)


def pinned(data: bytes = PROGRAM) -> Tool:
    return tool(Release(URL, sha256={"linux-amd64": sha256(data)}))


def packed(member: str) -> tuple[Tool, dict[str, bytes]]:
    """A release as an archive with this file, and the archive by its address."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo(member)
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    pin = {"linux-amd64": sha256(out.getvalue())}
    of = Release(PACKED, member="etcd-v{version}/etcd", sha256=pin)
    return tool(of), {PACKED: out.getvalue()}


def fetched(wanted: Tool, folder: Path, pages: Mapping[str, bytes]) -> Path | None:
    """From a web with these pages."""
    return download(wanted, PLATFORM, folder, lambda url: io.BytesIO(pages[url]))


CHECKSUMS = f"{URL}.sha256"


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        (pinned(), {FETCHED: PROGRAM}),
        packed("etcd-v3.6.14/etcd"),
        *(
            (
                tool(Release(URL, checksums_url=CHECKSUMS)),
                {FETCHED: PROGRAM, f"{FETCHED}.sha256": page.encode()},
            )
            for page in (DIGEST, f"{'1' * 64}  other\n{DIGEST} *etcd\n", f"{DIGEST.upper()}\n")
        ),
    ],
)
def test_what_has_the_pinned_digest_or_that_of_the_vendors_file_is_taken(
    tmp_path: Path, wanted: Tool, pages: dict[str, bytes]
) -> None:
    program = fetched(wanted, tmp_path, pages)
    assert program is not None
    assert program.read_bytes() == PROGRAM


def test_what_does_not_have_its_digest_or_not_the_program_is_refused(tmp_path: Path) -> None:
    wrong = rf"{FETCHED} has SHA-256 {DIGEST}, expected {sha256(b'')}.*not used"
    with pytest.raises(ToolError, match=wrong):
        fetched(pinned(b""), tmp_path, {FETCHED: PROGRAM})
    assert list(tmp_path.iterdir()) == []
    pages = {FETCHED: PROGRAM, f"{FETCHED}.sha256": b"<html>Not found</html>"}
    with pytest.raises(ToolError, match=r"etcd\.sha256 holds no SHA-256 of"):
        fetched(tool(Release(URL, checksums_url=CHECKSUMS)), tmp_path, pages)
    assert find_checksum(f"{DIGEST}  etcd.zip\n", "etcd") is None
    other, archive = packed("something-else")
    with pytest.raises(ToolError, match=r"etcd\.tar\.gz holds no file etcd-v3\.6\.14/etcd"):
        fetched(other, tmp_path, archive)
    # What nothing can verify or is not of this platform is not downloaded.
    assert fetched(tool(Release(URL)), tmp_path, {FETCHED: PROGRAM}) is None
    assert download(pinned(), Platform("darwin", "arm64"), tmp_path, open_url) is None
    assert fetched(tool(None), tmp_path, {}) is None


def test_a_download_that_breaks_off_or_a_server_that_is_not_there_counts_as_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError("reset by peer")

    with pytest.raises(NetworkError, match="broke off: reset by peer"):
        download(pinned(), PLATFORM, tmp_path, lambda _: Breaking())
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NetworkError, match=r"^127\.0\.0\.1 cannot be reached: Connection refused"):
        open_url("https://127.0.0.1:9/x")


PACKAGE = """\
mkdir -p "$3/usr/sbin"
printf '#!/bin/sh\\necho runc version 1.1.5+ds1\\n' > "$3/usr/sbin/runc"
"""


@pytest.fixture
def distribution(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """With apt-get and dpkg-deb on PATH, of which each is a script that a test can replace."""
    asked = world.path.with_name("asked")
    monkeypatch.setenv("PATH", f"{world.path}:/usr/bin:/bin")
    script(
        world.path / "apt-get",
        f"""\
        echo "$*" >> {asked}
        case "$*" in
          *update*) : > {asked}.lists;;
          *download*) [ -e {asked}.lists ] || exit 100; : > libmnl0.deb; : > program.deb;;
        esac""",
    )
    script(world.path / "dpkg-deb", PACKAGE)
    return world


def test_what_cannot_be_downloaded_comes_out_of_its_package_once_with_lists_that_are_fetched(
    distribution: World,
) -> None:
    program = distribution.ensure("runc")["runc"]
    assert "1.1.5" in program.read_text()
    assert "unpacked runc from its Debian package" in distribution.said
    assert (program.parent / "origin").read_text() == "Debian package\n"
    script(distribution.path / "apt-get", "exit 100")
    assert distribution.ensure("runc")["runc"] == program


def test_a_program_with_libraries_is_kept_with_all_of_them_behind_its_launcher(
    distribution: World, tmp_path: Path
) -> None:
    script(
        distribution.path / "dpkg-deb",
        r"""
        mkdir -p "$3/usr/sbin" "$3/usr/lib/any-linux-gnu"
        printf '#!/bin/sh\necho "$1 v1.8.9 with $LD_LIBRARY_PATH"\n' > "$3/usr/sbin/xtables-nft-multi"
        chmod +x "$3/usr/sbin/xtables-nft-multi"
        """,
    )
    program = distribution.ensure("iptables")["iptables"]
    assert "download iptables libxtables12 libmnl0 libnftnl11" in (tmp_path / "asked").read_text()
    # Called by a link, as a node does: the name says which of them, the libraries are found.
    (tmp_path / "iptables-save").symlink_to(program)
    said = subprocess.run([tmp_path / "iptables-save"], capture_output=True, text=True, check=True)
    libraries = program.parent / "root/usr/lib/any-linux-gnu"
    assert said.stdout == f"iptables-save v1.8.9 with {libraries}\n"


def test_what_is_not_to_be_had_is_named_with_the_reason(
    distribution: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ToolError, match="GPU_CLUSTERS_OFFLINE=1 forbids fetching it"):
        distribution.ensure("runc", offline=True)
    assert not (tmp_path / "asked").exists()
    script(distribution.path / "dpkg-deb", PACKAGE.replace("1.1.5", "2.0.0"))
    with pytest.raises(ToolError, match=r"runc \(Debian package\) says it is version 2\.0\.0"):
        distribution.ensure("runc")
    script(distribution.path / "apt-get", "echo 'E: Unable to locate package runc' >&2; exit 100")
    with pytest.raises(ToolError, match=r"Debian's package runc: .*Unable to locate.*install it"):
        distribution.ensure("runc")
    # Others use the name of the program on PATH.
    script(distribution.path / "busybox", "echo BusyBox v1.35.0")
    with pytest.raises(ToolError, match="busybox"):
        distribution.ensure("busybox", offline=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"no apt-get and dpkg-deb .* install runc"):
        debian_packages.unpack(TOOLS["runc"], tmp_path)
