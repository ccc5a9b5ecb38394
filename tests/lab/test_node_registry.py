"""The registry of real nodes: what it stands for, and what it does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lab.images import STAND_IN, archive
from lab.images.archive import Image, Settings
from lab.images.layer import File
from lab.nodes import registry
from lab.nodes.registry import Contents

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
