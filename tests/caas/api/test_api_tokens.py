"""Which tokens open the API, and what happens to its keys over time."""

import base64
import hashlib
import hmac
import json
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from caas.api.tokens import (
    AGAIN_SECONDS,
    LEEWAY_SECONDS,
    RENEW_SECONDS,
    STALE_SECONDS,
    IssuerKeys,
)
from tests.caas.api.apikit import (
    CASES,
    ISSUER,
    KEYS,
    Api,
    FakeIssuer,
    kind,
    played,
    playing,
    settings,
)

CONFIGURATION = f"{ISSUER}/.well-known/openid-configuration"
GOOD = {"iss": ISSUER, "aud": "gpu-clusters", "exp": 9_000_000_000, "tenant": "acme"}


async def tried(api: Api, token: str, scheme: str = "Bearer") -> str:
    header = f"{scheme} {token}".encode()
    answer = await api.client.get("/v1/tenancy", headers={"Authorization": header})
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"].startswith('Bearer realm="gpu-clusters"')
        assert not token or token not in answer.text
    return kind(answer)


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("algorithm", "bits", "answer"),
    [
        ("ES256", 0, "200"),
        ("RS256", 2048, "200"),
        ("EdDSA", 0, "200"),
        ("RS256", 1024, "401 unauthenticated"),
    ],
)
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@played
async def test_a_token_of_a_good_key_opens_the_tenants_own(
    api: Api, algorithm: str, bits: int, answer: str
) -> None:
    api.issuer.add("two", algorithm, bits)
    api.issuer.clock.now += AGAIN_SECONDS
    for scheme in ("Bearer", "bearer"):
        assert await tried(api, api.issuer.token("acme", kid="two"), scheme) == answer


@pytest.mark.attack(
    by="anyone on the network",
    tries="use a token of another audience, issuer or time",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@pytest.mark.parametrize("claims", CASES["claims"], ids=str)
@played
async def test_a_token_that_is_not_meant_is_refused(api: Api, claims: dict[str, Any]) -> None:
    # The library refuses to write some of them; whoever signs with other tools does not.
    said = {name: value for name, value in {**GOOD, **claims}.items() if value is not None}
    algorithm, key = api.issuer.private["one"]
    token = jwt.PyJWS().encode(json.dumps(said).encode(), key, algorithm, headers={"kid": "one"})
    assert await tried(api, token) == "401 unauthenticated"


@played
async def test_clocks_may_differ_a_little(api: Api) -> None:
    now = int(api.issuer.clock())
    for claims, answer in (
        ({"exp": now - LEEWAY_SECONDS + 10, "iat": now - 900}, "200"),
        ({"nbf": now + LEEWAY_SECONDS - 10}, "200"),
        ({"exp": now - LEEWAY_SECONDS - 5, "iat": now - 900}, "401 unauthenticated"),
    ):
        assert await tried(api, api.issuer.token("acme", **claims)) == answer


@pytest.mark.attack(
    by="anyone on the network",
    tries="come with a token that nobody signed",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@pytest.mark.parametrize("algorithm", CASES["unsigned"], ids=repr)
@played
async def test_an_unsigned_token_is_refused(api: Api, algorithm: Any) -> None:
    header = encoded({"alg": algorithm, "kid": "one", "typ": "JWT"})
    assert await tried(api, f"{header}.{encoded(GOOD)}.") == "401 unauthenticated"


@pytest.mark.attack(
    by="anyone on the network",
    tries="sign a token with the public key of the issuer as a shared secret",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
@played
async def test_a_public_key_is_no_shared_secret(api: Api, algorithm: str) -> None:
    """The classic: the token says HS256 and is 'signed' with the public key."""
    api.issuer.add("two", algorithm)
    api.issuer.clock.now += AGAIN_SECONDS
    _, key = api.issuer.private["two"]
    secret = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signed = f"{encoded({'alg': 'HS256', 'kid': 'two', 'typ': 'JWT'})}.{encoded(GOOD)}"
    digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert await tried(api, f"{signed}.{signature}") == "401 unauthenticated"


@pytest.mark.attack(
    by="anyone on the network",
    tries="bring its own key along in the token",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@played
async def test_a_key_that_a_token_brings_along_is_not_used(api: Api) -> None:
    stranger = FakeIssuer()
    for headers in (
        {},
        {"jwk": stranger.documents[KEYS]["keys"][0]},
        {"jku": "https://evil.example.com/keys"},
    ):
        token = stranger.token("acme", headers=headers)
        assert await tried(api, token) == "401 unauthenticated"
    assert not [url for url in api.issuer.asked if "evil" in url]


@pytest.mark.parametrize("headers", CASES["other kinds"], ids=str)
@played
async def test_a_token_of_another_kind_is_refused(api: Api, headers: dict[str, Any]) -> None:
    assert await tried(api, api.issuer.token("acme", headers=headers)) == "401 unauthenticated"


@pytest.mark.parametrize(
    ("scheme", "token"), [*CASES["no tokens"], ("Bearer", "a" * 9000)], ids=lambda text: text[:9]
)
@played
async def test_what_is_no_token_is_refused(api: Api, scheme: str, token: str) -> None:
    assert await tried(api, token, scheme) == "401 unauthenticated"


@pytest.mark.parametrize(
    "path",
    ["/v1/tenancy", "/v1/containers", "/v1/containers/c-1", "/v1/cluster", "/v1/nothing"],
)
@played
async def test_without_a_token_not_even_addresses_are_told_apart(api: Api, path: str) -> None:
    answer = await api.client.get(path)
    assert kind(answer) == "401 unauthenticated"
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="gpu-clusters"'


@played
async def test_keys_are_asked_for_once_and_again_for_a_new_one(api: Api) -> None:
    for _ in range(20):
        assert await tried(api, api.issuer.token("acme")) == "200"
    assert api.issuer.asked[KEYS] == 1
    api.issuer.add("two")
    api.issuer.clock.now += AGAIN_SECONDS
    for kid in ("two", "one"):
        assert await tried(api, api.issuer.token("acme", kid=kid)) == "200"
    assert api.issuer.asked[KEYS] == 2


@played
async def test_unknown_keys_do_not_make_the_api_flood_the_issuer(api: Api) -> None:
    stranger = FakeIssuer()
    for number in range(50):
        token = stranger.token("acme", headers={"kid": f"key-{number}"})
        assert await tried(api, token) == "401 unauthenticated"
        api.issuer.clock.now += AGAIN_SECONDS / 25
    assert api.issuer.asked[KEYS] <= 4


@played
async def test_a_withdrawn_key_is_forgotten(api: Api) -> None:
    api.issuer.add("two")
    del api.issuer.documents[KEYS]["keys"][0]
    assert await tried(api, api.issuer.token("acme")) == "200"
    api.issuer.clock.now += RENEW_SECONDS + 1
    assert await tried(api, api.issuer.token("acme")) == "401 unauthenticated"


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        ValueError("no JSON"),
        {"keys": []},
        [],
        {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one", "alg": "HS256"}]},
    ],
    ids=["away", "no json", "empty", "another thing", "weak"],
)
@played
async def test_keys_are_believed_for_a_while_when_the_issuer_fails_and_then_no_longer(
    api: Api, failure: Any
) -> None:
    issuer = api.issuer
    keys, issuer.documents[KEYS] = issuer.documents[KEYS], failure
    for seconds, answer in (
        (0, "200"),
        (RENEW_SECONDS + 1, "200"),
        (STALE_SECONDS, "503 issuer-unavailable"),
    ):
        issuer.clock.now += seconds
        assert await tried(api, issuer.token("acme")) == answer
    assert await api.condition.waits_for() == "the issuer has given no keys yet"
    issuer.documents[KEYS] = keys
    issuer.clock.now += AGAIN_SECONDS
    assert await tried(api, issuer.token("acme")) == "200"


def another_issuer() -> FakeIssuer:
    """Its configuration says that it is another one's."""
    issuer = FakeIssuer()
    issuer.documents[CONFIGURATION]["issuer"] = "https://x.example.com"
    return issuer


@playing(issuer=another_issuer())
async def test_the_configuration_of_another_issuer_is_not_believed(api: Api) -> None:
    assert await tried(api, api.issuer.token("acme")) == "503 issuer-unavailable"


@playing(issuer=another_issuer(), jwksUrl=KEYS)
async def test_a_stated_address_of_the_keys_needs_no_configuration(api: Api) -> None:
    assert await tried(api, api.issuer.token("acme")) == "200"


@played
async def test_an_address_without_tls_is_used_on_this_machine_only(api: Api) -> None:
    keys = IssuerKeys(settings(issuer="http://issuer.example.com").api, api.issuer.clock)
    await keys.renew()
    assert not keys.known


@playing(requestsPerSecond=0.001, burst=5)
async def test_too_many_requests_are_told_when_to_come_again(api: Api) -> None:
    answers = [await api.get("acme", "/v1/tenancy") for _ in range(8)]
    assert [kind(one) for one in answers[:5]] == ["200"] * 5
    assert kind(answers[-1]) == "429 rate-limited"
    assert int(answers[-1].headers["retry-after"]) >= 1
    # One tenant's haste is not the other's.
    assert (await api.get("globex", "/v1/tenancy")).status_code == 200
