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

from caas.api.tokens import AGAIN_SECONDS, LEEWAY_SECONDS, RENEW_SECONDS, STALE_SECONDS
from tests.caas.api.apikit import ISSUER, Api, FakeIssuer, play, played
from tests.caas.api.test_api_containers import kind

KEYS = f"{ISSUER}/keys"


async def tried(api: Api, token: str, scheme: str = "Bearer") -> str:
    answer = await api.client.get("/v1/tenancy", headers={"Authorization": f"{scheme} {token}"})
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"].startswith('Bearer realm="gpu-clusters"')
        assert token not in answer.text
    return "200" if answer.status_code == 200 else kind(answer)


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
def test_a_good_token_opens_the_tenants_own(algorithm: str) -> None:
    issuer = FakeIssuer()
    issuer.add("two", algorithm)

    async def act(api: Api) -> None:
        assert await tried(api, issuer.token("acme", kid="two")) == "200"
        assert await tried(api, issuer.token("acme", kid="two"), "bearer") == "200"

    play(act, issuer=issuer)


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_000_000},
    "not yet valid": {"nbf": 9_000_000_000},
    "issued in the future": {"iat": 9_000_000_000},
    "for another service": {"aud": "billing"},
    "for other services": {"aud": ["billing", "mail"]},
    "from another issuer": {"iss": "https://other.example.com"},
    "without end": {"exp": None},
    "without audience": {"aud": None},
    "without issuer": {"iss": None},
    "with an end that never comes": {"exp": float("nan")},
    "with an infinite end": {"exp": float("inf")},
    "with an end in words": {"exp": "tomorrow"},
}


@pytest.mark.attack(
    by="anyone on the network",
    tries="use a token of another audience, issuer or time",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@pytest.mark.parametrize("which", BAD_CLAIMS)
@played
async def test_a_token_that_is_not_meant_is_refused(api: Api, which: str) -> None:
    issuer = api.issuer
    claims = BAD_CLAIMS[which]
    # The library refuses to write some of them; whoever signs with other tools does not.
    said = {
        "iss": ISSUER, "aud": "gpu-clusters", "exp": 9_000_000_000, "tenant": "acme", **claims
    }  # fmt: skip
    said = {name: value for name, value in said.items() if value is not None}
    token = jwt.PyJWS().encode(
        json.dumps(said).encode(), issuer.private["one"], "ES256", headers={"kid": "one"}
    )
    assert await tried(api, token) == "401 unauthenticated"


@pytest.mark.parametrize("tenant", [None, "", "../kube-system", "Acme", 7, ["acme"], "a" * 64])
@played
async def test_a_token_that_names_no_tenant_opens_nothing(api: Api, tenant: Any) -> None:
    assert await tried(api, api.issuer.token(tenant)) == "403 no-tenancy"


@played
async def test_clocks_may_differ_a_little(api: Api) -> None:
    api.clock.stop()
    now = int(api.clock())
    late = api.issuer.token("acme", exp=now - LEEWAY_SECONDS + 10, iat=now - 900)
    early = api.issuer.token("acme", nbf=now + LEEWAY_SECONDS - 10)
    assert await tried(api, late) == await tried(api, early) == "200"
    too_late = api.issuer.token("acme", exp=now - LEEWAY_SECONDS - 5, iat=now - 900)
    assert await tried(api, too_late) == "401 unauthenticated"


@pytest.mark.attack(
    by="anyone on the network",
    tries="come with a token that nobody signed",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@played
async def test_an_unsigned_token_is_refused(api: Api) -> None:
    body = encoded({"iss": ISSUER, "aud": "gpu-clusters", "exp": 9e9, "tenant": "acme"})
    for algorithm in ("none", "None", "NONE", "", None, [], {}):
        header = encoded({"alg": algorithm, "kid": "one", "typ": "JWT"})
        assert await tried(api, f"{header}.{body}.") == "401 unauthenticated"


@pytest.mark.attack(
    by="anyone on the network",
    tries="sign a token with the public key of the issuer as a shared secret",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
def test_a_public_key_is_no_shared_secret(algorithm: str) -> None:
    """The classic: the token says HS256 and is 'signed' with the public key."""
    issuer = FakeIssuer()
    issuer.add("two", algorithm)

    async def act(api: Api) -> None:
        secret = (
            issuer.private["two"]
            .public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        header = encoded({"alg": "HS256", "kid": "two", "typ": "JWT"})
        body = encoded(
            {"iss": ISSUER, "aud": "gpu-clusters", "exp": 9_000_000_000, "tenant": "acme"}
        )
        digest = hmac.new(secret, f"{header}.{body}".encode(), hashlib.sha256).digest()
        signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        assert await tried(api, f"{header}.{body}.{signature}") == "401 unauthenticated"

    play(act, issuer=issuer)


@played
async def test_a_foreign_key_under_a_known_id_is_refused(api: Api) -> None:
    stranger = FakeIssuer()
    assert await tried(api, stranger.token("acme")) == "401 unauthenticated"


@played
async def test_a_changed_token_is_refused(api: Api) -> None:
    header, _, signature = api.issuer.token("acme").split(".")
    body = encoded({"iss": ISSUER, "aud": "gpu-clusters", "exp": 9_000_000_000, "tenant": "globex"})
    assert await tried(api, f"{header}.{body}.{signature}") == "401 unauthenticated"


@pytest.mark.attack(
    by="anyone on the network",
    tries="bring its own key along in the token",
    stopped_by="signature, algorithm and claims are checked against the issuer's keys",
)
@played
async def test_a_key_that_a_token_brings_along_is_not_used(api: Api) -> None:
    stranger = FakeIssuer()
    key = stranger.documents[KEYS]["keys"][0]
    for header in (
        {"jwk": key},
        {"jku": "https://evil.example.com/keys"},
        {"crit": ["b64"], "b64": True},
    ):
        token = stranger.token("acme", headers=header)
        assert await tried(api, token) == "401 unauthenticated"
    assert not [url for url in api.issuer.asked if "evil" in url]


@pytest.mark.parametrize("kind_of", ["id+jwt", "logout+jwt", "dpop+jwt", 3])
@played
async def test_a_token_of_another_kind_is_refused(api: Api, kind_of: Any) -> None:
    token = api.issuer.token("acme", headers={"typ": kind_of})
    assert await tried(api, token) == "401 unauthenticated"


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YWNtZTpzM2NyZXQ=", "Bearer a.b.c", "Bearer x", "Bearer " + "a" * 9000,
     "Bearer é.é.é"],
)  # fmt: skip
@played
async def test_what_is_no_token_is_refused(api: Api, header: str) -> None:
    answer = await api.client.get("/v1/tenancy", headers={"Authorization": header.encode("utf-8")})
    assert kind(answer) == "401 unauthenticated"


@pytest.mark.parametrize("path", ["/v1/tenancy", "/v1/containers/c-1", "/v1/nothing"])
@played
async def test_without_a_token_not_even_addresses_are_told_apart(api: Api, path: str) -> None:
    answer = await api.client.get(path)
    assert kind(answer) == "401 unauthenticated"
    assert "error=" not in answer.headers["www-authenticate"]


@played
async def test_keys_are_asked_for_once(api: Api) -> None:
    for _ in range(20):
        assert await tried(api, api.issuer.token("acme")) == "200"
    assert api.issuer.asked[KEYS] == 1


@played
async def test_a_new_key_is_found_when_a_token_names_it(api: Api) -> None:
    assert await tried(api, api.issuer.token("acme")) == "200"
    api.issuer.add("two")
    api.clock.ahead += AGAIN_SECONDS
    assert await tried(api, api.issuer.token("acme", kid="two")) == "200"
    assert await tried(api, api.issuer.token("acme")) == "200"


@played
async def test_unknown_keys_do_not_make_the_api_flood_the_issuer(api: Api) -> None:
    # Else a slow machine would add to it.
    api.clock.stop()
    stranger = FakeIssuer()
    for number in range(50):
        stranger.add(f"key-{number}")
        token = stranger.token("acme", kid=f"key-{number}")
        assert await tried(api, token) == "401 unauthenticated"
        api.clock.ahead += AGAIN_SECONDS / 25
    assert api.issuer.asked[KEYS] <= 4


@played
async def test_a_withdrawn_key_is_forgotten(api: Api) -> None:
    api.issuer.add("two")
    token = api.issuer.token("acme")
    assert await tried(api, token) == "200"
    api.issuer.withdraw("one")
    api.clock.ahead += RENEW_SECONDS + 1
    assert await tried(api, token) == "401 unauthenticated"


FAILURES: dict[str, Any] = {
    "away": httpx.ConnectError("refused"),
    "no json": ValueError("no JSON"),
    "empty": {"keys": []},
    "another thing": [],
    "weak": {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one", "alg": "HS256"}]},
}


@pytest.mark.parametrize("failure", FAILURES)
@played
async def test_keys_are_believed_for_a_while_when_the_issuer_fails_and_then_no_longer(
    api: Api, failure: str
) -> None:
    assert await tried(api, api.issuer.token("acme")) == "200"
    api.issuer.documents[KEYS] = FAILURES[failure]
    api.clock.ahead += RENEW_SECONDS + 1
    now = {"now": api.clock()}
    assert await tried(api, api.issuer.token("acme", **now)) == "200"
    api.clock.ahead += STALE_SECONDS
    assert await tried(api, api.issuer.token("acme", now=api.clock())) == "503 issuer-unavailable"
    assert await api.condition.waits_for() == "the issuer has given no keys yet"


def test_an_issuer_that_comes_later_is_found() -> None:
    issuer = FakeIssuer()
    keys = issuer.documents[KEYS]
    issuer.documents[KEYS] = httpx.ConnectError("refused")

    async def act(api: Api) -> None:
        assert await tried(api, issuer.token("acme")) == "503 issuer-unavailable"
        issuer.documents[KEYS] = keys
        api.clock.ahead += AGAIN_SECONDS
        assert await tried(api, issuer.token("acme", now=api.clock())) == "200"

    play(act, issuer=issuer)


def test_the_configuration_of_another_issuer_is_not_believed() -> None:
    issuer = FakeIssuer()
    issuer.documents[f"{ISSUER}/.well-known/openid-configuration"]["issuer"] = (
        "https://x.example.com"
    )

    async def act(api: Api) -> None:
        assert await tried(api, issuer.token("acme")) == "503 issuer-unavailable"

    play(act, issuer=issuer)


def test_a_stated_address_of_the_keys_needs_no_configuration() -> None:
    issuer = FakeIssuer()
    del issuer.documents[f"{ISSUER}/.well-known/openid-configuration"]

    async def act(api: Api) -> None:
        assert await tried(api, issuer.token("acme")) == "200"

    play(act, issuer=issuer, jwksUrl=KEYS)


def test_a_short_rsa_key_signs_nothing() -> None:
    issuer = FakeIssuer()
    issuer.add("short", "RS256", bits=1024)

    async def act(api: Api) -> None:
        assert await tried(api, issuer.token("acme", kid="short")) == "401 unauthenticated"

    play(act, issuer=issuer)


def test_an_address_without_tls_is_used_on_this_machine_only() -> None:
    from caas.api.tokens import IssuerKeys
    from tests.caas.api.apikit import settings

    async def act(api: Api) -> None:
        keys = IssuerKeys(settings(issuer="http://issuer.example.com").api, api.clock)
        await keys.renew()
        assert not keys.known

    play(act)


def test_too_many_requests_are_told_when_to_come_again() -> None:
    async def act(api: Api) -> None:
        answers = [await api.get("acme", "/v1/tenancy") for _ in range(8)]
        codes = [one.status_code for one in answers]
        assert codes[:5] == [200] * 5
        assert codes[-1] == 429
        assert kind(answers[-1]) == "429 rate-limited"
        assert int(answers[-1].headers["retry-after"]) >= 1
        # One tenant's haste is not the other's.
        assert (await api.get("globex", "/v1/tenancy")).status_code == 200

    play(act, requestsPerSecond=0.001, burst=5)
