"""Certificates that sign themselves: of a management controller, and of what clusters keep on their hosts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR_DAYS = 365
"""Leaf certificates of kubeadm and of RKE2 are valid for a year."""


def self_signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    days: int = _YEAR_DAYS,
    names: Sequence[x509.GeneralName] = (),
) -> bytes:
    """PEM of a certificate; with `names` it is a server's, which clients check against them."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    public, now = key.public_key(), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1) if names else now)
        .not_valid_after(now + timedelta(days=days))
    )
    if names:
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        ) | dict.fromkeys(("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"), False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(identifier, critical=False)
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def leaf(name: str) -> str:
    """One whose key nobody keeps: only its end is looked at."""
    return self_signed(name, ec.generate_private_key(ec.SECP256R1())).decode()
