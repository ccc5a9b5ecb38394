"""The issuer's keys over TLS, for whoever reaches it beyond loopback: its certificate and its port.

Programs that run as pods of real nodes reach the machine's loopback at an address of the cluster, and there
they believe keys only over HTTPS.
"""

from __future__ import annotations

import ssl
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lab.files import read_json, write_json
from lab.issuer.model import ADDRESS, KEYS, IssuerError, IssuerFolder

if TYPE_CHECKING:
    from lab.control_plane.layout import Layout

_PORT = "keys"


@dataclass(frozen=True, slots=True)
class OverTls:
    """Where the keys are, for pods: `port` of the machine's loopback leads there."""

    url: str
    port: int
    authority: str
    """PEM of the authority of the certificate that is shown there."""


def known(paths: IssuerFolder) -> OverTls | None:
    """What the server shows, or will when it starts; None if it serves on loopback alone."""
    found = read_json(paths.over_tls)
    return OverTls(**found) if found is not None else None


def is_settled(paths: IssuerFolder, authority: Layout | None) -> bool:
    """Whether a server that runs shows a certificate of this authority, or none where none is asked for."""
    shown = known(paths)
    return (shown.authority if shown else None) == (_certificate(authority) if authority else None)


def settle(paths: IssuerFolder, authority: Layout | None) -> None:
    """Make what the next server needs to show a certificate of this authority; without one it shows none.

    Raises:
        IssuerError: there is no such authority.
    """
    paths.over_tls.unlink(missing_ok=True)
    if authority is None:
        return
    # Take a second to import, which an issuer on loopback alone need not wait for.
    from lab.control_plane import pki
    from lab.control_plane.ports import reserve
    from lab.nodes.network import MACHINE

    signed_by = _certificate(authority)
    server = pki.Client("issuer", "gpu-clusters-issuer")
    pki.issue(authority, paths.certificate, server, addresses=[MACHINE, ADDRESS])
    port = reserve(paths.keys_ports, [_PORT])[_PORT]
    # Last: whoever finds it may rely on the others.
    write_json(paths.over_tls, asdict(OverTls(f"https://{MACHINE}:{port}{KEYS}", port, signed_by)))


def context(paths: IssuerFolder) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(paths.certificate, paths.certificate.with_suffix(".key"))
    return made


def _certificate(authority: Layout) -> str:
    from lab.control_plane.pki import CA

    try:
        return authority.certificate(CA).read_text()
    except FileNotFoundError as error:
        raise IssuerError(
            f"there is no control plane in {authority.folder}, whose authority the issuer needs; start it "
            "first"
        ) from error
