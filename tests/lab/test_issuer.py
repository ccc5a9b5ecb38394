"""The lab's issuer of tokens: its process, its keys, its tokens."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import psutil
import pytest

from lab import issuer
from lab.control_plane import pki
from lab.control_plane.layout import Layout
from lab.issuer import IssuerStatus

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One issuer for all tests, which start it as they need it."""
    path = tmp_path_factory.mktemp("issuers") / "issuer"
    yield path
    issuer.stop(path)


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def checked(url: str, token: str) -> dict[str, Any]:
    """The claims of a token, checked as anybody would who only knows the issuer's address."""
    configuration = fetched(f"{url}/.well-known/openid-configuration")
    keys = jwt.PyJWKSet.from_dict(fetched(configuration["jwks_uri"]))
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims: dict[str, Any] = jwt.decode(
        token, key, audience="gpu-clusters", issuer=configuration["issuer"]
    )
    return claims


def test_a_token_can_be_checked_by_whoever_knows_the_address_while_its_key_is_there(
    folder: Path,
) -> None:
    url = issuer.start(folder).url
    assert url is not None
    begin = int(time.time())
    claims = checked(url, issuer.token(folder, "acme", 600))
    assert claims["tenant"] == "acme"
    assert claims["iss"] == url
    assert begin + 600 <= claims["exp"] <= time.time() + 600
    old = issuer.token(folder, "acme")
    issuer.rotate(folder)
    assert checked(url, old)["tenant"] == checked(url, issuer.token(folder, "acme"))["tenant"]
    issuer.rotate(folder, keep_old=False)
    with pytest.raises(KeyError):
        checked(url, old)
    with pytest.raises(jwt.ExpiredSignatureError):
        checked(url, issuer.token(folder, "acme", -60))
    with pytest.raises(jwt.InvalidAudienceError):
        checked(url, issuer.token(folder, "acme", audience="billing"))


def test_an_issuer_that_ended_comes_back_with_its_name_and_keys(folder: Path) -> None:
    before = issuer.start(folder)
    assert issuer.start(folder) == before
    assert before.url is not None
    # None that outgoing connections get.
    assert int(before.url.rsplit(":", 1)[1]) in range(20000, 26000)
    assert "stand-in" in before.log.read_text().splitlines()[0]
    token = issuer.token(folder, "acme")

    def killed() -> None:
        os.kill(issuer.status(folder).pid or 0, signal.SIGKILL)

    for end in (killed, lambda: issuer.stop(folder)):
        process = psutil.Process(issuer.status(folder).pid)
        end()
        # This test is its parent only by chance; a zombie has ended.
        psutil.wait_procs([process], timeout=PATIENCE_SECONDS)
        assert not issuer.status(folder).running
        after = issuer.start(folder)
        assert after.url == before.url
        assert checked(str(after.url), token)["tenant"] == "acme"


def test_what_signs_is_its_owners_alone(folder: Path) -> None:
    issuer.start(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private = folder / "signing-key.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    secret = json.loads(private.read_text())["d"]
    published = fetched(f"{issuer.status(folder).url}/keys")
    assert all("d" not in key for key in published["keys"])
    assert secret not in (folder / "server.log").read_text()


@pytest.fixture
def authority(tmp_path: Path) -> Layout:
    layout = Layout.of(tmp_path / "lab")
    pki.ensure(layout)
    return layout


def over_tls(found: IssuerStatus) -> Any:
    """Its keys, as a pod gets them that trusts the lab's authority and comes through the node's relay."""
    trust = ssl.create_default_context(cadata=found.ca_certificate)
    raw = socket.create_connection(("127.0.0.1", found.port or 0), timeout=PATIENCE_SECONDS)
    with trust.wrap_socket(raw, server_hostname="10.96.0.2") as connection:
        connection.sendall(b"GET /keys HTTP/1.0\r\n\r\n")
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    return json.loads(said.partition(b"\r\n\r\n")[2])


def test_pods_get_its_keys_over_tls_at_an_address_that_it_keeps(
    folder: Path, authority: Layout
) -> None:
    first = issuer.start(folder, authority)
    assert first.keys_url == f"https://10.96.0.2:{first.port}/keys"
    assert over_tls(first) == fetched(f"{first.url}/keys")
    assert issuer.start(folder, authority) == first
    # Whoever says nothing holds up no other.
    with socket.create_connection(("127.0.0.1", first.port or 0)) as silent:
        assert over_tls(first)["keys"]
        silent.sendall(b"this is no TLS")
    assert over_tls(first)["keys"]
    assert "Traceback" not in first.log.read_text()
    issuer.stop(folder)
    again = issuer.start(folder, authority)
    assert (again.keys_url, again.ca_certificate) == (first.keys_url, first.ca_certificate)
    assert over_tls(again) == fetched(f"{first.url}/keys")
