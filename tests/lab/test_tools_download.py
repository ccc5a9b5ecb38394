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


def packed(data: bytes) -> Tool:
    return tool(
        Release(PACKED, member="etcd-v{version}/etcd", sha256={"linux-amd64": sha256(data)})
    )


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


ARCHIVE = archive("etcd-v3.6.14/etcd")
CHECKSUMS = f"{URL}.sha256"


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        (pinned(), {FETCHED: PROGRAM}),
        (packed(ARCHIVE), {PACKED: ARCHIVE}),
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
    program = download(wanted, PLATFORM, tmp_path, Web(pages))
    assert program is not None
    assert program.read_bytes() == PROGRAM


def test_what_does_not_have_its_digest_or_not_the_program_is_refused(tmp_path: Path) -> None:
    wrong = rf"{FETCHED} has SHA-256 {DIGEST}, expected {sha256(b'')}.*not used"
    with pytest.raises(ToolError, match=wrong):
        download(pinned(b""), PLATFORM, tmp_path, Web({FETCHED: PROGRAM}))
    assert list(tmp_path.iterdir()) == []
    web = Web({FETCHED: PROGRAM, f"{FETCHED}.sha256": b"<html>Not found</html>"})
    with pytest.raises(ToolError, match=r"etcd\.sha256 holds no SHA-256 of"):
        download(tool(Release(URL, checksums_url=CHECKSUMS)), PLATFORM, tmp_path, web)
    assert find_checksum(f"{DIGEST}  etcd.zip\n", "etcd") is None
    other = archive("something-else")
    with pytest.raises(ToolError, match=r"etcd\.tar\.gz holds no file etcd-v3\.6\.14/etcd"):
        download(packed(other), PLATFORM, tmp_path, Web({PACKED: other}))


def test_what_nothing_can_verify_or_is_not_of_this_platform_is_not_downloaded(
    tmp_path: Path,
) -> None:
    assert download(tool(Release(URL)), PLATFORM, tmp_path, Web({FETCHED: PROGRAM})) is None
    assert download(pinned(), Platform("darwin", "arm64"), tmp_path, Web({})) is None
    assert download(tool(None), PLATFORM, tmp_path, Web({})) is None


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


def test_every_pinned_digest_is_one() -> None:
    for known in TOOLS.values():
        for digest in known.release.sha256.values() if known.release else ():
            assert len(bytes.fromhex(digest)) == 32
