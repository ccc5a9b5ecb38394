"""A server's certificate: whether its chain is in order, it is for a host, a key is its own, and its time."""

import datetime
import itertools
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

Chain = Sequence[x509.Certificate]


def read(pem: str) -> Chain:
    """The certificates of a chain, the server's own first; ValueError if it is no chain in PEM."""
    return x509.load_pem_x509_certificates(pem.encode())


def is_in_order(chain: Chain) -> bool:
    """Whether each certificate is signed by the next, as servers send them (RFC 8446, 4.4.2)."""
    for one, issuer in itertools.pairwise(chain):
        try:
            one.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
    return True


def names(chain: Chain) -> tuple[str, ...]:
    """The DNS names that the server's certificate is for. Its common name counts for nothing (RFC 9525)."""
    try:
        alternatives = chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(alternatives.value.get_values_for_type(x509.DNSName))


def covers(chain: Chain, host: str) -> bool:
    """Whether clients take the certificate for this host; a wildcard stands for one label (RFC 9525, 6.3)."""
    wanted = host.lower()
    _, _, parent = wanted.partition(".")
    return any(name.lower() in (wanted, f"*.{parent}") for name in names(chain))


def begins(chain: Chain) -> datetime.datetime:
    """From when on all certificates of the chain are valid."""
    return max(one.not_valid_before_utc for one in chain)


def ends(chain: Chain) -> datetime.datetime:
    """When the first certificate of the chain expires."""
    return min(one.not_valid_after_utc for one in chain)


def fits(chain: Chain, key: str) -> bool:
    """Whether a private key is the server's; ValueError if it is none in PEM without a passphrase."""
    try:
        loaded = serialization.load_pem_private_key(key.encode(), None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("not a private key that can be read") from error
    return loaded.public_key() == chain[0].public_key()
