"""Official downloads are verified before anything of them is used."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.tools.catalogue import TOOLS, Platform, Release, Tool
from lab.tools.download import NetworkError, download, find_checksum, open_url
from lab.tools.model import ToolError

PLATFORM = Platform("linux", "amd64")
PROGRAM = b"the program"
DIGEST = hashlib.sha256(PROGRAM).hexdigest()
URL = "https://releases.test/v{version}/{os}/{arch}/etcd"
FETCHED = "https://releases.test/v3.6.14/linux/amd64/etcd"


def tool(release: Release | None) -> Tool:
    return dataclasses.replace(TOOLS["etcd"], release=release)


def archive(member: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo(member)
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    return out.getvalue()


class Web:
    """Pages by address; anything else is unreachable."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.pages = pages

    def __call__(self, url: str) -> io.BytesIO:
        if url not in self.pages:
            raise NetworkError(f"{url} cannot be reached")
        return io.BytesIO(self.pages[url])


def test_a_file_with_the_pinned_digest_is_taken(tmp_path: Path) -> None:
    pinned = tool(Release(URL, sha256={"linux-amd64": DIGEST}))
    program = download(pinned, PLATFORM, tmp_path, Web({FETCHED: PROGRAM}))
    assert program is not None
    assert program.read_bytes() == PROGRAM


def test_a_file_with_another_digest_is_refused_and_removed(tmp_path: Path) -> None:
    pinned = tool(Release(URL, sha256={"linux-amd64": "0" * 64}))
    with pytest.raises(
        ToolError, match=rf"{FETCHED} has SHA-256 {DIGEST}, expected 0000.*not used"
    ):
        download(pinned, PLATFORM, tmp_path, Web({FETCHED: PROGRAM}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "page", [DIGEST, f"{DIGEST}\n", f"{'1' * 64}  other\n{DIGEST} *etcd\n", DIGEST.upper()]
)
def test_without_a_pin_the_vendors_checksum_file_decides(tmp_path: Path, page: str) -> None:
    unpinned = tool(Release(URL, checksums_url=f"{URL}.sha256"))
    web = Web({FETCHED: PROGRAM, f"{FETCHED}.sha256": page.encode()})
    assert download(unpinned, PLATFORM, tmp_path, web) is not None


def test_a_vendors_checksum_file_without_the_digest_is_refused(tmp_path: Path) -> None:
    unpinned = tool(Release(URL, checksums_url=f"{URL}.sha256"))
    web = Web({FETCHED: PROGRAM, f"{FETCHED}.sha256": b"<html>Not found</html>"})
    with pytest.raises(ToolError, match=r"etcd\.sha256 holds no SHA-256 of"):
        download(unpinned, PLATFORM, tmp_path, web)


def test_what_nothing_can_verify_is_not_downloaded(tmp_path: Path) -> None:
    assert download(tool(Release(URL)), PLATFORM, tmp_path, Web({FETCHED: PROGRAM})) is None


def test_a_tool_without_a_release_for_the_platform_is_not_downloaded(tmp_path: Path) -> None:
    pinned = tool(Release(URL, sha256={"linux-amd64": DIGEST}))
    assert download(pinned, Platform("darwin", "arm64"), tmp_path, Web({})) is None
    assert download(tool(None), PLATFORM, tmp_path, Web({})) is None


def test_the_program_is_taken_out_of_a_verified_archive(tmp_path: Path) -> None:
    data = archive("etcd-v3.6.14/etcd")
    release = Release(
        "https://releases.test/etcd.tar.gz",
        member="etcd-v{version}/etcd",
        sha256={"linux-amd64": hashlib.sha256(data).hexdigest()},
    )
    web = Web({"https://releases.test/etcd.tar.gz": data})
    program = download(tool(release), PLATFORM, tmp_path, web)
    assert program is not None
    assert program.read_bytes() == PROGRAM


def test_an_archive_without_the_program_is_refused(tmp_path: Path) -> None:
    data = archive("something-else")
    release = Release(
        "https://releases.test/etcd.tar.gz",
        member="etcd-v{version}/etcd",
        sha256={"linux-amd64": hashlib.sha256(data).hexdigest()},
    )
    web = Web({"https://releases.test/etcd.tar.gz": data})
    with pytest.raises(ToolError, match=r"etcd\.tar\.gz holds no file etcd-v3\.6\.14/etcd"):
        download(tool(release), PLATFORM, tmp_path, web)


def test_a_download_that_breaks_off_counts_as_no_network(tmp_path: Path) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise ConnectionResetError("reset by peer")

    pinned = tool(Release(URL, sha256={"linux-amd64": DIGEST}))
    with pytest.raises(NetworkError, match="broke off: reset by peer"):
        download(pinned, PLATFORM, tmp_path, lambda _: Breaking())


def test_a_server_that_is_not_there_counts_as_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NetworkError, match=r"^127\.0\.0\.1 cannot be reached: Connection refused"):
        open_url("https://127.0.0.1:9/x")


def test_a_checksum_of_another_file_is_not_taken() -> None:
    assert find_checksum(f"{DIGEST}  etcd.zip\n", "etcd") is None


def test_every_pinned_digest_is_one() -> None:
    for known in TOOLS.values():
        for digest in known.release.sha256.values() if known.release else ():
            assert len(bytes.fromhex(digest)) == 32
