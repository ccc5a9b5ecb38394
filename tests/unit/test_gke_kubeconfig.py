"""The kubeconfig of a gke cluster holds no secret, and both kubectl and this program get a token by it."""

import base64
import json
import ssl
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.core.errors import NoCredentialsError
from gpuclusters.gcp import kubeconfig
from gpuclusters.kube.objects import KubernetesObjects
from tests.fixtures.authority import Authority
from tests.fixtures.loopback import Answering, serving
from tests.fixtures.tables import beside
from tests.unit.cli.conftest import Cli, cli

__all__ = ["cli"]

TOKEN = "a-token-of-nobody"


def test_kubectl_is_told_a_token_and_when_to_ask_again(cli: Cli) -> None:
    told = json.loads(cli("google-token", GOOGLE_OAUTH_ACCESS_TOKEN=TOKEN).stdout)
    assert told["kind"] == "ExecCredential"
    assert told["apiVersion"] == "client.authentication.k8s.io/v1"
    assert told["status"]["token"] == TOKEN
    ends = datetime.fromisoformat(told["status"]["expirationTimestamp"])
    assert timedelta(minutes=5) < ends - datetime.now(UTC) < timedelta(minutes=15)


def test_without_credentials_it_says_how_to_get_some(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "google-token",
        GOOGLE_OAUTH_ACCESS_TOKEN="",
        GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "absent.json"),
        CLOUDSDK_CONFIG=str(tmp_path),
        NO_GCE_CHECK="true",
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "gcloud auth application-default login" in done.stderr


def test_the_kubeconfig_names_a_command_and_holds_no_secret() -> None:
    text = kubeconfig.render("study", "203.0.113.5", "QUJD", "robot@acme.iam.gserviceaccount.com")
    document = yaml.safe_load(text)
    (user,) = document["users"]
    assert set(user["user"]) == {"exec"}
    program = user["user"]["exec"]
    arguments = ["google-token", "--impersonate", "robot@acme.iam.gserviceaccount.com"]
    assert (program["command"], program["args"]) == ("gpu-clusters", arguments)
    (cluster,) = document["clusters"]
    assert cluster["cluster"]["server"] == "https://203.0.113.5"
    assert "insecure" not in text


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """An API server's address, the certificate of its authority, and as whom it was asked."""
    asked: list[str] = []

    class Handler(Answering):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization", ""))
            self.answer(200, {"gitVersion": "v1.34.1-gke.1829001"})

    issuer = Authority(tmp_path)
    issued = issuer.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued / "tls.crt", issued / "tls.key")
    authority = base64.b64encode(issuer.certificate.read_bytes()).decode()
    with serving(Handler, context) as url:
        yield f"localhost:{url.rpartition(':')[2]}", authority, asked


def test_this_program_logs_in_by_its_own_command_wherever_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, api: tuple[str, str, list[str]]
) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
    monkeypatch.setenv("PATH", "/nowhere")
    endpoint, authority, asked = api
    cluster = KubernetesObjects(kubeconfig.render("study", endpoint, authority))
    assert cluster.version() == "v1.34.1-gke.1829001"
    assert asked == [f"Bearer {TOKEN}"]


def test_keys_of_a_kubeconfig_are_on_the_disk_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: tuple[str, str, list[str]]
) -> None:
    endpoint, authority, _ = api
    issued = Authority(tmp_path).issue("admin")
    names = {"client-certificate-data": "tls.crt", "client-key-data": "tls.key"}
    user = {k: base64.b64encode((issued / f).read_bytes()).decode() for k, f in names.items()}
    document = yaml.safe_load(kubeconfig.render("study", endpoint, authority))
    files = tmp_path / "temporary"
    files.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    for number in (1, 2):  # the library remembers the files of the first
        document["users"] = [{"name": "study", "user": user}]
        text = yaml.safe_dump({**document, "preferences": {"number": number}})
        assert KubernetesObjects(text).version() == "v1.34.1-gke.1829001"
        assert not list(files.iterdir())


UNUSABLE = beside(__file__, "unusable_kubeconfigs.yaml")


@pytest.mark.parametrize(("changed", "problem"), UNUSABLE)
def test_a_kubeconfig_that_cannot_be_used_is_refused(changed: dict[str, Any], problem: str) -> None:
    document = yaml.safe_load(kubeconfig.render("study", "203.0.113.5", ""))
    document["users"] = [{"name": "study", "user": {"token": TOKEN}}]
    with pytest.raises(NoCredentialsError, match=problem) as refused:
        KubernetesObjects(yaml.safe_dump(document | changed))
    assert TOKEN not in str(refused.value)


def test_what_is_no_kubeconfig_is_refused() -> None:
    for text in ("", "[]", "token: [secret", "just words"):
        with pytest.raises(NoCredentialsError, match="read it") as refused:
            KubernetesObjects(text)
        assert "secret" not in str(refused.value)
