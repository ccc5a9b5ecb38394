"""The issuer's keys: fetched when needed, kept, renewed, and given up when they are too old."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt

from caas.settings import Api

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures only: a key that is public must not also be the secret of an HMAC."""
RENEW_SECONDS = 300.0
STALE_SECONDS = 3600.0
"""How long keys are believed while the issuer does not answer."""
AGAIN_SECONDS = 10.0
"""Between two questions to the issuer, whatever unknown keys tokens name."""
_FETCH_SECONDS = 5.0
_LARGEST_DOCUMENT = 1_000_000
_SHORTEST_RSA_BITS = 2048
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

Fetch = Callable[[str], Awaitable[Any]]
Keys = Mapping[str, jwt.PyJWK]
_log = logging.getLogger(__name__)


class KeysUnavailableError(Exception):
    """There are no keys that may still be believed."""


class IssuerKeys:
    """The keys of one issuer by their id."""

    def __init__(self, api: Api, clock: Callable[[], float], fetch: Fetch | None = None) -> None:
        self._issuer = api.issuer
        self._url = api.jwks_url
        self._authority = api.ca_certificate
        self._clock = clock
        self._fetch = fetch or self._get
        self._keys: Keys = {}
        self._fetched: float | None = None
        self._asked: float | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def known(self) -> bool:
        """Whether there are keys that may be believed."""
        return self._fetched is not None and self._clock() - self._fetched < STALE_SECONDS

    async def key(self, kid: str | None) -> jwt.PyJWK | None:
        """The key of this id, None if the issuer has none such.

        Without an id the issuer's only key is meant, if it has exactly one.

        Raises:
            KeysUnavailableError: the issuer has not answered for too long.
        """
        old = self._fetched is None or self._clock() - self._fetched >= RENEW_SECONDS
        if old or (kid is not None and kid not in self._keys):
            await self.renew()
        if not self.known:
            raise KeysUnavailableError(f"the issuer {self._issuer} gives no keys")
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    async def renew(self) -> None:
        """Ask the issuer, unless that was done just now. What it does not answer stays as it was."""
        asked = self._asked
        async with self._one_at_a_time:
            # Whoever waited here gets what the one before has fetched.
            just_now = self._asked is not None and self._clock() - self._asked < AGAIN_SECONDS
            if self._asked != asked or just_now:
                return
            self._asked = self._clock()
            try:
                self._keys = _usable(await self._fetch(await self._place()))
                self._fetched = self._clock()
            except (httpx.HTTPError, OSError, ValueError) as error:
                _log.warning("the issuer's keys cannot be renewed: %s", error)

    async def _place(self) -> str:
        if self._url is None:
            where = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
            said = await self._fetch(where)
            if not isinstance(said, dict) or said.get("issuer") != self._issuer:
                raise ValueError(f"{where} is not the configuration of {self._issuer}")
            url = said.get("jwks_uri")
            if not isinstance(url, str):
                raise ValueError(f"{where} names no jwks_uri")
            return url
        return self._url

    async def _get(self, url: str) -> Any:
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            raise ValueError(f"{url} must be https: whoever changes keys on the way is everybody")
        trust = ssl.create_default_context(cadata=self._authority)
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
        if key.algorithm_name in ALGORITHMS and _strong(key):
            keys[str(entry.get("kid", ""))] = key
    if not keys:
        raise ValueError("the issuer's set holds no key that may sign tokens")
    return keys


def _strong(key: jwt.PyJWK) -> bool:
    return key.key_type != "RSA" or key.key.key_size >= _SHORTEST_RSA_BITS
