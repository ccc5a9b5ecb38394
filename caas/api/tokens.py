"""Who calls: the tenant that a bearer token speaks for, by the issuer's keys, fetched, kept and renewed."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt

from caas.api.problems import Problem, ProblemError, unauthenticated
from caas.settings import Api
from gpuclusters.core.naming import is_dns_label

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures only: a key that is public must not also be the secret of an HMAC."""
RENEW_SECONDS = 300.0
STALE_SECONDS = 3600.0
"""How long keys are believed while the issuer does not answer."""
AGAIN_SECONDS = 10.0
"""Between two questions to the issuer, whatever unknown keys tokens name."""
LEEWAY_SECONDS = 30
"""Between the issuer's clock and ours."""
_FETCH_SECONDS = 5.0
_LARGEST_DOCUMENT = 1_000_000
_SHORTEST_RSA_BITS = 2048
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_LONGEST_TOKEN = 8192
_END_OF_TIME = 1e12
_TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
# What a token must say, and why one that says otherwise is refused, without repeating it.
_REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired; get a new one",
    jwt.ImmatureSignatureError: "the token is not valid yet; compare the clocks",
    jwt.InvalidAudienceError: "the token is meant for another service",
    jwt.InvalidIssuerError: "the token is from another issuer",
    jwt.InvalidSignatureError: "the token's signature is wrong",
    jwt.MissingRequiredClaimError: "the token lacks one of exp, iss, aud",
}

Fetch = Callable[[str], Awaitable[Any]]
Keys = Mapping[str, jwt.PyJWK]
_log = logging.getLogger(__name__)


class KeysUnavailableError(Exception):
    """There are no keys that may still be believed."""


@dataclass(eq=False)
class IssuerKeys:
    api: Api
    clock: Callable[[], float]
    fetch: Fetch | None = None
    """Asks for a document; by default over HTTPS."""
    _keys: Keys = field(default_factory=dict)
    _fetched: float = float("-inf")
    _asked: float = float("-inf")
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def known(self) -> bool:
        return self.clock() - self._fetched < STALE_SECONDS

    async def key(self, kid: str | None) -> jwt.PyJWK | None:
        """The key of this id; None if the issuer has none such. Without an id: its only key, if it has one.

        `KeysUnavailableError` if the issuer has not answered for too long.
        """
        old = self.clock() - self._fetched >= RENEW_SECONDS
        if old or (kid is not None and kid not in self._keys):
            await self.renew()
        if not self.known:
            raise KeysUnavailableError(f"the issuer {self.api.issuer} gives no keys")
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    async def renew(self) -> None:
        """Ask the issuer, unless that was done just now. What it does not answer stays as it was."""
        asked = self._asked
        async with self._one_at_a_time:
            # Whoever waited here gets what the one before has fetched.
            if self._asked != asked or self.clock() - self._asked < AGAIN_SECONDS:
                return
            self._asked = self.clock()
            fetch = self.fetch or self._get
            try:
                self._keys = _usable(
                    await fetch(self.api.jwks_url or await self._discovered(fetch))
                )
                self._fetched = self.clock()
            except (httpx.HTTPError, OSError, ValueError) as error:
                _log.warning("the issuer's keys cannot be renewed: %s", error)

    async def _discovered(self, fetch: Fetch) -> str:
        where = self.api.issuer.rstrip("/") + "/.well-known/openid-configuration"
        said = await fetch(where)
        if not isinstance(said, dict) or said.get("issuer") != self.api.issuer:
            raise ValueError(f"{where} is not the configuration of {self.api.issuer}")
        url = said.get("jwks_uri")
        if not isinstance(url, str):
            raise ValueError(f"{where} names no jwks_uri")  # noqa: TRY004
        return url

    async def _get(self, url: str) -> Any:
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise ValueError(f"{url} must be https: whoever changes keys on the way is everybody")
        trust = ssl.create_default_context(cadata=self.api.ca_certificate)
        async with (
            httpx.AsyncClient(verify=trust, timeout=_FETCH_SECONDS, trust_env=False) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
        ):
            answer.raise_for_status()
            content = b""
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > _LARGEST_DOCUMENT:
                    raise ValueError(f"{url} is larger than any set of keys")
        return httpx.Response(200, content=content).json()


def _usable(document: Any) -> Keys:
    """Keys that may sign tokens; others in the set are no fault, a set without any is."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the issuer's keys are no JSON Web Key Set")  # noqa: TRY004
    keys: dict[str, jwt.PyJWK] = {}
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict({k: v for k, v in entry.items() if k != "d"})
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        strong = key.key_type != "RSA" or key.key.key_size >= _SHORTEST_RSA_BITS
        if key.algorithm_name in ALGORITHMS and strong:
            keys[str(entry.get("kid", ""))] = key
    if not keys:
        raise ValueError("the issuer's set holds no key that may sign tokens")
    return keys


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `expires` is when its token ends, in seconds since 1970."""

    tenant: str
    """Empty for an operator whose token names no tenant."""
    expires: float
    operator: bool = False


@dataclass(frozen=True, slots=True)
class Callers:
    api: Api
    keys: IssuerKeys
    clock: Callable[[], float]

    async def caller(self, authorization: str | None) -> Caller:
        """Whom the header field `Authorization` proves: else 401, 403 without a tenant, 503 if unchecked."""
        if authorization is None:
            raise unauthenticated("send the header `Authorization: Bearer <token>`", None)
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            raise unauthenticated("the header must be `Authorization: Bearer <token>`")
        claims = await self._claims(token)
        claim = self.api.tenant_claim
        tenant, operator = claims.get(claim), self._is_operator(claims)
        if tenant is None and operator:
            tenant = ""
        elif not isinstance(tenant, str) or not is_dns_label(tenant):
            raise ProblemError(Problem.NO_TENANCY, f"the token's claim `{claim}` names no tenant")
        return Caller(tenant, float(claims["exp"]), operator)

    def _is_operator(self, claims: Mapping[str, Any]) -> bool:
        wanted, groups = self.api.operator_group, claims.get("groups")
        # A list and nothing else: of a text, `in` would find every part.
        return wanted is not None and isinstance(groups, list) and wanted in groups

    async def _claims(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise unauthenticated("the token is no signed JSON Web Token") from None
        algorithm, kind = header.get("alg"), header.get("typ") or ""
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise unauthenticated("the token's algorithm is not accepted")
        # `crit` names extensions that must be understood; none is.
        if "crit" in header or not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise unauthenticated("the token is no access token")
        try:
            key = await self.keys.key(header.get("kid"))
        except KeysUnavailableError:
            away = "the issuer of tokens does not answer; try again"
            raise ProblemError(Problem.KEYS_AWAY, away) from None
        if key is None or key.algorithm_name != algorithm:
            raise unauthenticated("the token is signed with a key that its issuer does not have")
        try:
            return self._verified(token, key)
        except jwt.PyJWTError as error:
            reason = _REASONS.get(type(error), "the token's claims are not usable")
            raise unauthenticated(reason) from None

    def _verified(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[str(key.algorithm_name)],
            audience=self.api.audience,
            issuer=self.api.issuer,
            # Times are compared below, with this program's clock.
            options={
                "require": ["exp", "iss", "aud"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        now = self.clock()
        if now >= _time(claims, "exp") + LEEWAY_SECONDS:
            raise jwt.ExpiredSignatureError
        begins = [_time(claims, name) for name in ("nbf", "iat") if name in claims]
        if any(now < begin - LEEWAY_SECONDS for begin in begins):
            raise jwt.ImmatureSignatureError
        return claims


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is neither before nor after anything, so such a token would never end.
    if not number or not abs(value) < _END_OF_TIME:
        raise jwt.DecodeError(f"{name} is no time")
    return float(value)
