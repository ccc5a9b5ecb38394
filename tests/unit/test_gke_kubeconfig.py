"""The kubeconfig of a gke cluster holds no secret, and both kubectl and this program get a token by it."""

import base64
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from gpuclusters.gcp import kubeconfig
from gpuclusters.kube.objects import KubernetesObjects
from tests.fixtures.authority import Authority
from tests.fixtures.loopback import Answering, serving

TOKEN = "a-token-of-nobody"


def google_token(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuclusters.cli", "google-token", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_kubectl_is_told_a_token_and_when_to_ask_again() -> None:
    done = google_token(GOOGLE_OAUTH_ACCESS_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kind"], told["apiVersion"]) == (
        "ExecCredential",
        "client.authentication.k8s.io/v1",
    )
    assert told["status"]["token"] == TOKEN
    ends = datetime.fromisoformat(told["status"]["expirationTimestamp"])
    assert timedelta(minutes=5) < ends - datetime.now(UTC) < timedelta(minutes=15)


def test_without_credentials_it_says_how_to_get_some(tmp_path: object) -> None:
    done = google_token(
        GOOGLE_OAUTH_ACCESS_TOKEN="",
        GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path) + "/absent.json",
        CLOUDSDK_CONFIG=str(tmp_path),
        NO_GCE_CHECK="true",
    )
    assert done.returncode == 1
    assert "gcloud auth application-default login" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_kubeconfig_names_a_command_and_holds_no_secret() -> None:
    text = kubeconfig.render("study", "203.0.113.5", "QUJD", "robot@acme.iam.gserviceaccount.com")
    document = yaml.safe_load(text)
    (user,) = document["users"]
    assert set(user["user"]) == {"exec"}
    program = user["user"]["exec"]
    assert (program["command"], program["args"]) == (
        "gpu-clusters",
        ["google-token", "--impersonate", "robot@acme.iam.gserviceaccount.com"],
    )
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

    issued = Authority(tmp_path).issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued / "tls.crt", issued / "tls.key")
    authority = base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode()
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
