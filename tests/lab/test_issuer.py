"""The lab's issuer of tokens: its process, its keys, its tokens."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
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
from lab.issuer import IssuerError, IssuerStatus

PATIENCE_SECONDS = 120


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "issuer"
    issuer.stop(tmp_path / "issuer")


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


def test_a_token_can_be_checked_by_whoever_knows_the_address(folder: Path) -> None:
    url = issuer.start(folder).url
    assert url is not None
    begin = int(time.time())
    claims = checked(url, issuer.token(folder, "acme", 600))
    assert claims["tenant"] == "acme"
    assert claims["iss"] == url
    assert begin + 600 <= claims["exp"] <= time.time() + 600
    with pytest.raises(jwt.ExpiredSignatureError):
        checked(url, issuer.token(folder, "acme", -60))
    with pytest.raises(jwt.InvalidAudienceError):
        checked(url, issuer.token(folder, "acme", audience="billing"))


def test_its_port_is_none_that_outgoing_connections_get(folder: Path) -> None:
    port = int(str(issuer.start(folder).url).rsplit(":", 1)[1])
    assert port in range(20000, 26000)


def test_starting_what_runs_changes_nothing(folder: Path) -> None:
    assert issuer.start(folder) == issuer.start(folder)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_issuer_that_ended_comes_back_with_its_name_and_keys(folder: Path, how: int) -> None:
    before = issuer.start(folder)
    token = issuer.token(folder, "acme")
    assert before.pid is not None
    process = psutil.Process(before.pid)
    os.kill(before.pid, how)
    # This test is its parent only by chance; a zombie has ended.
    psutil.wait_procs([process], timeout=PATIENCE_SECONDS)
    assert not issuer.status(folder).running
    after = issuer.start(folder)
    assert after.url == before.url
    assert checked(str(after.url), token)["tenant"] == "acme"


def test_stopping_leaves_no_process_and_may_be_repeated(folder: Path) -> None:
    pid = issuer.start(folder).pid
    issuer.stop(folder)
    issuer.stop(folder)
    assert pid is not None
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not issuer.status(folder).running


def test_after_a_rotation_old_tokens_are_good_until_the_old_key_goes(folder: Path) -> None:
    url = str(issuer.start(folder).url)
    old = issuer.token(folder, "acme")
    issuer.rotate(folder)
    new = issuer.token(folder, "acme")
    assert checked(url, old)["tenant"] == checked(url, new)["tenant"] == "acme"
    issuer.rotate(folder, keep_old=False)
    with pytest.raises(KeyError):
        checked(url, new)
    assert checked(url, issuer.token(folder, "acme"))["tenant"] == "acme"


def test_what_signs_is_its_owners_alone(folder: Path) -> None:
    issuer.start(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private = folder / "signing-key.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    secret = json.loads(private.read_text())["d"]
    published = fetched(f"{issuer.status(folder).url}/keys")
    assert all("d" not in key for key in published["keys"])
    assert secret not in (folder / "server.log").read_text()


def test_its_first_line_says_that_it_is_a_stand_in(folder: Path) -> None:
    log = issuer.start(folder).log
    assert "stand-in" in log.read_text().splitlines()[0]


def test_a_port_that_somebody_took_is_told(folder: Path) -> None:
    first = issuer.start(folder)
    taken = int(str(first.url).rsplit(":", 1)[1])
    other = folder.with_name("other")
    other.mkdir()
    (other / "port.json").write_text(str(taken))
    with pytest.raises(IssuerError, match=f"another process has port {taken}"):
        issuer.start(other)


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


def listening(found: IssuerStatus) -> set[int]:
    """Its ports; what it let go may be another program's by now."""
    connections = psutil.Process(found.pid).net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


def test_pods_get_its_keys_over_tls_at_an_address_that_it_keeps(
    folder: Path, authority: Layout
) -> None:
    first = issuer.start(folder, authority)
    assert first.keys_url == f"https://10.96.0.2:{first.port}/keys"
    assert over_tls(first) == fetched(f"{first.url}/keys")
    issuer.rotate(folder)
    assert len(over_tls(first)["keys"]) == 2
    assert issuer.start(folder, authority) == first
    issuer.stop(folder)
    again = issuer.start(folder, authority)
    assert (again.keys_url, again.ca_certificate) == (first.keys_url, first.ca_certificate)
    assert over_tls(again) == fetched(f"{first.url}/keys")


def test_whoever_says_nothing_holds_up_no_other(folder: Path, authority: Layout) -> None:
    found = issuer.start(folder, authority)
    with socket.create_connection(("127.0.0.1", found.port or 0)) as silent:
        assert over_tls(found)["keys"]
        silent.sendall(b"this is no TLS")
    assert over_tls(found)["keys"]
    assert "Traceback" not in found.log.read_text()


def test_an_authority_that_was_made_anew_signs_anew(folder: Path, authority: Layout) -> None:
    first = issuer.start(folder, authority)
    authority.certificate(pki.CA).unlink()
    pki.ensure(authority)
    second = issuer.start(folder, authority)
    assert second.ca_certificate != first.ca_certificate
    assert (second.url, second.keys_url) == (first.url, first.keys_url)
    assert over_tls(second)["keys"]


def test_without_an_authority_its_keys_are_on_loopback_alone(
    folder: Path, authority: Layout
) -> None:
    assert len(listening(issuer.start(folder, authority))) == 2
    plain = issuer.start(folder)
    assert (plain.keys_url, plain.ca_certificate, plain.port) == (None, None, None)
    assert [f"http://127.0.0.1:{port}" for port in listening(plain)] == [plain.url]


def test_an_authority_that_is_not_there_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(IssuerError, match="start it first"):
        issuer.start(folder, Layout.of(tmp_path / "nothing"))


def test_a_token_of_an_issuer_that_never_was_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IssuerError, match="start it first"):
        issuer.token(tmp_path / "nothing", "acme")


def test_the_command_prints_a_token(folder: Path) -> None:
    url = str(issuer.start(folder).url)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lab.issuer", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )

    printed = run("token", str(folder), "acme", "60")
    assert checked(url, printed.stdout.strip())["tenant"] == "acme"
    assert run("status", str(folder)).stdout.startswith(url)
    assert run("token", str(folder.with_name("none")), "acme").returncode == 1
    assert run("dance", str(folder)).returncode == 2
