"""Certificates of the control plane: made once, kept, renewed before they expire."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.control_plane.layout import Layout
from lab.files import write_atomic

CA = "ca"
SERVING = "serving"
SERVICE_ACCOUNT = "service-account"
_CA_DAYS = 3650
_LEAF_DAYS = 730
_RENEW_DAYS = 60
_SERVING_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_SERVING_ADDRESSES = ("127.0.0.1", "10.96.0.1")


@dataclass(frozen=True, slots=True)
class Client:
    """A client certificate: its file name, and who its bearer is to the API server."""

    name: str
    user: str
    group: str = ""


CLIENTS = (
    Client("admin", "gpu-clusters-admin", "system:masters"),
    Client("kube-controller-manager", "system:kube-controller-manager"),
    Client("kube-scheduler", "system:kube-scheduler"),
    Client("kubelet", "gpu-clusters-kubelet"),
    Client("etcd-client", "kube-apiserver"),
    Client("kubelet-client", "kube-apiserver-kubelet-client"),
)


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ensure(layout: Layout, now: datetime.datetime | None = None) -> list[str]:
    """Make what is missing and renew what expires within 60 days; the names of what was made.

    A new authority makes everything new, since nothing signed by the old one would be trusted.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    layout.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = []
    if not _is_good(layout, layout.certificate(CA), now):
        _write(layout, CA, *_make_authority(now))
        made.append(CA)
    authority = _load_authority(layout)
    for name in (SERVING, *(client.name for client in CLIENTS)):
        if made[:1] == [CA] or not _is_good(layout, layout.certificate(name), now):
            _write(layout, name, *_make_leaf(name, authority, now))
            made.append(name)
    if not layout.key(SERVICE_ACCOUNT).exists() or not _public_key(layout).exists():
        key = ec.generate_private_key(ec.SECP256R1())
        write_atomic(layout.key(SERVICE_ACCOUNT), _key_pem(key), mode=0o600)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_atomic(_public_key(layout), public)
        made.append(SERVICE_ACCOUNT)
    return made


def issue(
    layout: Layout,
    certificate_file: Path,
    client: Client,
    *,
    names: Sequence[str] = (),
    addresses: Sequence[str] = (),
) -> None:
    """A new certificate of the lab's authority, with its key beside it (`.key`), for another part of the lab.

    With names or addresses it is for serving too. Raises `FileNotFoundError` when there is no authority yet.
    """
    now = datetime.datetime.now(datetime.UTC)
    made, key = _leaf(client, names, addresses, _load_authority(layout), now)
    write_atomic(certificate_file.with_suffix(".key"), _key_pem(key), mode=0o600)
    write_atomic(certificate_file, made.public_bytes(serialization.Encoding.PEM))


def keep(layout: Layout, certificate_file: Path, client: Client, *, names: Sequence[str]) -> None:
    """As `issue`, unless there is one of this authority that lasts for another 60 days."""
    now = datetime.datetime.now(datetime.UTC)
    if not _is_good(layout, certificate_file, now):
        certificate_file.parent.mkdir(mode=0o700, exist_ok=True)
        issue(layout, certificate_file, client, names=names)


def _public_key(layout: Layout) -> Path:
    return layout.pki / f"{SERVICE_ACCOUNT}.pub"


def _is_good(layout: Layout, file: Path, now: datetime.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        key = serialization.load_pem_private_key(file.with_suffix(".key").read_bytes(), None)
        authority = x509.load_pem_x509_certificate(layout.certificate(CA).read_bytes())
        certificate.verify_directly_issued_by(authority)
    except (FileNotFoundError, ValueError, InvalidSignature):
        return False
    expires = certificate.not_valid_after_utc
    return (
        certificate.public_key() == key.public_key()
        and expires - now > datetime.timedelta(days=_RENEW_DAYS)
        and certificate.not_valid_before_utc <= now
    )


def _make_authority(
    now: datetime.datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpu-clusters lab")])
    certificate = (
        _builder(name, name, key, now, _CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _make_leaf(
    name: str, authority: _Authority, now: datetime.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    client = next((client for client in CLIENTS if client.name == name), Client(name, "kubernetes"))
    if name == SERVING:
        return _leaf(client, _SERVING_NAMES, _SERVING_ADDRESSES, authority, now)
    return _leaf(client, (), (), authority, now)


def _leaf(
    client: Client,
    names: Sequence[str],
    addresses: Sequence[str],
    authority: _Authority,
    now: datetime.datetime,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate for a client; one that also serves under names and addresses, if there are any."""
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, client.user)]
    if client.group:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, client.group))
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(
        x509.Name(attributes), authority.certificate.subject, key, now, _LEAF_DAYS
    ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if names or addresses:
        # etcd is a client of itself with the certificate that it serves.
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        hosts = [x509.DNSName(host) for host in names]
        numbers = [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
        builder = builder.add_extension(
            x509.SubjectAlternativeName([*hosts, *numbers]), critical=False
        )
    certificate = (
        builder.add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A clock that is set back a little must not make the lab unusable.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _load_authority(layout: Layout) -> _Authority:
    key = serialization.load_pem_private_key(layout.key(CA).read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{layout.key(CA)} is not an EC key")
    certificate = x509.load_pem_x509_certificate(layout.certificate(CA).read_bytes())
    return _Authority(certificate, key)


def _write(
    layout: Layout, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    write_atomic(layout.key(name), _key_pem(key), mode=0o600)
    write_atomic(layout.certificate(name), certificate.public_bytes(serialization.Encoding.PEM))


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
