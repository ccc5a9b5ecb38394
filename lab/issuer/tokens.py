"""The issuer's keys, and tokens signed with them."""

import json
import secrets
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from lab.files import read_json, write_json
from lab.issuer.model import ADDRESS, AUDIENCE, CLAIM, IssuerError, IssuerFolder
from lab.server_process import one_at_a_time

ALGORITHM = "ES256"


def token(
    folder: Path,
    tenant: str,
    lifetime: float = 3600,
    *,
    audience: str = AUDIENCE,
    claims: dict[str, Any] | None = None,
) -> str:
    """A token for a tenant, valid for `lifetime` seconds from now; negative: expired.

    Args:
        folder: the issuer's.
        tenant: goes into the claim `tenant`.
        lifetime: in seconds.
        audience: whom it is meant for.
        claims: more, or other ones.

    Raises:
        IssuerError: the issuer was never started.
    """
    paths = IssuerFolder(folder.resolve())
    key, port = read_json(paths.private_key), read_json(paths.port)
    if key is None or port is None:
        raise IssuerError(f"there is no issuer in {folder}; start it first")
    now = time.time()
    said = {
        "iss": url(port),
        "aud": audience,
        "sub": f"lab:{tenant}",
        "iat": int(min(now, now + lifetime)),
        "exp": int(now + lifetime),
        "jti": secrets.token_hex(8),
        CLAIM: tenant,
        **(claims or {}),
    }
    return jwt.encode(
        said,
        jwt.PyJWK.from_dict(key).key,
        algorithm=ALGORITHM,
        headers={"kid": key["kid"], "typ": "at+jwt"},
    )


def rotate(folder: Path, *, keep_old: bool = True) -> str:
    """Sign with a new key from now on; gives its id.

    The old key stays published, so that its tokens are good until they expire, unless `keep_old` is
    False.
    """
    paths = IssuerFolder(folder.resolve())
    with one_at_a_time(paths.start_lock):
        return _new_key(paths, keep_old=keep_old)


def ensure_key(paths: IssuerFolder) -> None:
    """Make the first key. The caller holds the lock."""
    if read_json(paths.private_key) is None:
        _new_key(paths, keep_old=False)


def url(port: int) -> str:
    return f"http://{ADDRESS}:{port}"


def _new_key(paths: IssuerFolder, *, keep_old: bool) -> str:
    kid = secrets.token_hex(8)
    named = {"kid": kid, "use": "sig", "alg": ALGORITHM}
    pair = ec.generate_private_key(ec.SECP256R1())
    published = [json.loads(ECAlgorithm.to_jwk(pair.public_key())) | named]
    if keep_old:
        published += (read_json(paths.keys) or {"keys": []})["keys"]
    # Published first: nobody gets a token that cannot be checked.
    write_json(paths.keys, {"keys": published})
    write_json(paths.private_key, json.loads(ECAlgorithm.to_jwk(pair)) | named)
    return kid
