"""Who a host's management controller is: its certificate and key, and the password of all of them."""

from __future__ import annotations

import secrets
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.keys import create
from lab.hosts.model import ADDRESS

_DAYS = 3650


def ensure_password(folder: HostsFolder) -> str:
    """The password of the account on every controller of this folder; made when there is none."""
    if not folder.bmc_password.exists():
        create(folder.bmc_password, f"{secrets.token_urlsafe(24)}\n".encode())
    return folder.bmc_password.read_text().strip()


def ensure_certificate(host: HostFolder) -> str:
    """PEM of the host's self-signed certificate; made with its key when there is none."""
    if not host.bmc_certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        # The certificate comes last: where it is, its key is.
        host.bmc_key.unlink(missing_ok=True)
        create(host.bmc_key, pem)
        create(host.bmc_certificate, _self_signed(host.name, key))
    return host.bmc_certificate.read_text()


def tls(host: HostFolder) -> ssl.SSLContext:
    """How the controller answers: with its own certificate, asking for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(_path(host.bmc_certificate), _path(host.bmc_key))
    return context


def _path(path: Path) -> str:
    return str(path)


def _self_signed(name: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-bmc")])
    public = key.public_key()
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    names = [x509.DNSName(f"{name}-bmc"), x509.IPAddress(ip_address(ADDRESS))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
