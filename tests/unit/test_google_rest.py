"""Calls of the Compute API, and as whom Google Cloud is asked."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gpuclusters.core.errors import (
    CommandTimeoutError,
    InvalidAnswerError,
    UnreachableError,
)
from gpuclusters.gcp.api import GoogleCompute, GoogleCredentials, GoogleRest
from gpuclusters.gcp.model import ApiError, Refused
from tests.fixtures.loopback import Answering, serving
from tests.fixtures.tables import beside
from tests.providers.compute_double import TOKEN, Cloud, compute_double

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


ZONE = "us-central1-a"
BODY = {"name": "gpu-1", "labels": {"gpu-clusters-owner": "o"}}


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with compute_double() as made:
        yield made


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
def compute(cloud: Cloud, waited: list[float]) -> GoogleCompute:
    return GoogleCompute(GoogleRest(lambda: TOKEN, cloud.url, waited.append))


def test_a_call_that_was_limited_is_made_again_also_if_it_changes_something(
    cloud: Cloud, compute: GoogleCompute, waited: list[float]
) -> None:
    cloud.limited = 3
    compute.insert("p", ZONE, BODY, 60)
    assert len(waited) == 3
    assert waited[0] < waited[2]
    assert list(cloud.instances) == [(ZONE, "gpu-1")]


def test_one_that_is_limited_for_ever_is_given_up(
    cloud: Cloud, compute: GoogleCompute, waited: list[float]
) -> None:
    cloud.limited = 100
    with pytest.raises(ApiError, match="Rate Limit Exceeded"):
        compute.insert("p", ZONE, BODY, 60)
    assert len(waited) == 6


def test_an_operation_that_takes_too_long_goes_on_at_google(
    cloud: Cloud, compute: GoogleCompute
) -> None:
    cloud.stuck = True
    with pytest.raises(CommandTimeoutError, match="goes on at Google"):
        compute.insert("p", ZONE, BODY, 0)


def test_nobody_who_answers_and_no_json_are_said(cloud: Cloud) -> None:
    gone = GoogleRest(lambda: TOKEN, "http://127.0.0.1:1/compute/v1/", lambda _: None)
    with pytest.raises(UnreachableError, match="no answer"):
        gone.operate("POST", "projects/p/zones/z/instances", {}, 1)
    cloud.nonsense = True
    with pytest.raises(InvalidAnswerError, match="no JSON: '<html>proxy'"):
        GoogleRest(lambda: TOKEN, cloud.url, lambda _: None).get("projects/p")


def test_a_token_never_goes_where_it_can_be_read() -> None:
    with pytest.raises(InvalidAnswerError, match="it is not https"):
        GoogleRest(lambda: TOKEN, "http://compute.example.com/")


def test_an_error_of_the_api_keeps_its_code(cloud: Cloud) -> None:
    rest = GoogleRest(lambda: TOKEN, cloud.url)
    with pytest.raises(ApiError) as caught:
        rest.get(f"projects/p/zones/{ZONE}/instances/none")
    assert (caught.value.status, caught.value.code) == (404, "notFound")


ANSWERS = beside(__file__, "google_answers.yaml")


@pytest.mark.parametrize(("code", "message", "kind"), ANSWERS)
def test_which_answers_send_a_machine_to_the_next_zone(code: str, message: str, kind: str) -> None:
    assert ApiError(400, code, message).kind is Refused[kind]
