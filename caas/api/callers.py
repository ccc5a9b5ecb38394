"""Who calls: the tenant that a bearer token speaks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt

from caas.api.jwks import ALGORITHMS, IssuerKeys, KeysUnavailableError
from caas.api.problems import Problem, ProblemError, retry_after, unauthenticated
from caas.settings import Api
from gpuclusters.domain.naming import is_dns_label

LEEWAY_SECONDS = 30
"""Between the issuer's clock and ours."""
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


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `expires` is when its token ends, in seconds since 1970."""

    tenant: str
    expires: float


class Callers:
    """Checks tokens of one issuer."""

    def __init__(self, api: Api, keys: IssuerKeys, clock: Callable[[], float]) -> None:
        self._api = api
        self._keys = keys
        self._clock = clock

    async def caller(self, authorization: str | None) -> Caller:
        """The caller that the header field `Authorization` proves.

        Raises:
            ProblemError: 401, 403 if the token names no tenant, 503 if it cannot be checked.
        """
        if authorization is None:
            raise unauthenticated("send the header `Authorization: Bearer <token>`", None)
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            raise unauthenticated("the header must be `Authorization: Bearer <token>`")
        claims = await self._claims(token)
        tenant = claims.get(self._api.tenant_claim)
        if not isinstance(tenant, str) or not is_dns_label(tenant):
            raise ProblemError(
                Problem.NO_TENANCY,
                f"the token's claim `{self._api.tenant_claim}` names no tenant",
            )
        return Caller(tenant, float(claims["exp"]))

    async def _claims(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise unauthenticated("the token is no signed JSON Web Token") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        kind = header.get("typ") or ""
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise unauthenticated("the token's algorithm is not accepted")
        # `crit` names extensions that must be understood; none is.
        if "crit" in header or not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise unauthenticated("the token is no access token")
        try:
            key = await self._keys.key(kid)
        except KeysUnavailableError:
            raise retry_after(
                Problem.KEYS_AWAY, "the issuer of tokens does not answer; try again", 10
            ) from None
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
            audience=self._api.audience,
            issuer=self._api.issuer,
            # Times are compared below, with this program's clock.
            options={
                "require": ["exp", "iss", "aud"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        now = self._clock()
        if now >= _time(claims, "exp") + LEEWAY_SECONDS:
            raise jwt.ExpiredSignatureError
        if any(
            now < _time(claims, name) - LEEWAY_SECONDS for name in ("nbf", "iat") if name in claims
        ):
            raise jwt.ImmatureSignatureError
        return claims


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN is neither before nor after anything, so such a token would never end.
    if not number or not abs(value) < _END_OF_TIME:
        raise jwt.DecodeError(f"{name} is no time")
    return float(value)
