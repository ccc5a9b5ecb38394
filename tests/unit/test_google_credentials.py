"""As whom Google Cloud is asked: the environment first, then application default credentials."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gpuclusters.core.errors import NoCredentialsError
from gpuclusters.gcp.api import GoogleCredentials
from tests.fixtures.loopback import Answering, serving

KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


@dataclass
class Issuer:
    """Gives a token to whoever asks."""

    url: str = ""
    asked: list[bytes] = field(default_factory=list)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()

    class Handler(Answering):
        def do_POST(self) -> None:
            made.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"access_token": "issued", "expires_in": 3600, "token_type": "Bearer"}
            self.answer(200, answer)

    with serving(Handler) as url:
        made.url = f"{url}/token"
        yield made


def key_file(folder: Path, issuer: Issuer) -> Path:
    private = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "key.json"
    account = {
        "type": "service_account",
        "client_email": "ops@p.iam.gserviceaccount.com",
        "private_key": private.decode(),
        "private_key_id": "1",
        "project_id": "p",
        "token_uri": issuer.url,
    }
    file.write_text(json.dumps(account))
    return file


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)


def test_a_token_in_the_environment_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "given")
    assert GoogleCredentials().token() == "given"


def test_a_key_file_is_turned_into_a_token_once(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_FILE, str(key_file(tmp_path, issuer)))
    credentials = GoogleCredentials()
    assert {credentials.token() for _ in range(3)} == {"issued"}
    assert len(issuer.asked) == 1


def test_credentials_that_are_not_there_name_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "none.json"))
    with pytest.raises(NoCredentialsError, match="gcloud auth application-default login"):
        GoogleCredentials().token()
