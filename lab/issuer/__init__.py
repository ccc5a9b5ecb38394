"""A stand-in for an organisation's OpenID issuer: discovery and keys over HTTP, tokens for the asking.

    issuer = start(folder)
    token(folder, "acme", lifetime=3600)

One server process per folder on one loopback port, which it keeps, because the address is the issuer's
name. Beside real nodes its keys are served over TLS too, with a certificate of the lab's authority. Whoever
can read the folder can be any tenant: it is for the lab and for tests. It has no login, no clients, no
refresh tokens, no revocation.
"""

from lab.issuer.model import IssuerError, IssuerStatus
from lab.issuer.process import start, status, stop
from lab.issuer.tokens import rotate, token

__all__ = ["IssuerError", "IssuerStatus", "rotate", "start", "status", "stop", "token"]
