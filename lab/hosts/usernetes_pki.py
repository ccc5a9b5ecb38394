"""Certificates and the kubeconfig of a simulated Usernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.kubeconfig import of_lab

_VALID = timedelta(days=365)
"""Leaf certificates of kubeadm are valid for a year."""


def certificate(name: str) -> str:
    """A new certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + _VALID)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def kubeconfig(lab: Path, environment: Mapping[str, str]) -> str:
    """That of the lab's own API server, if the hosts belong to a lab; else of nobody.

    Args:
        lab: the folder that the folder of hosts lies in.
        environment: of the node.
    """
    server = f"https://{environment['NODE_NAME']}:{environment['PORT_KUBE_APISERVER']}"
    return of_lab(lab, server, name="kubernetes", client="kubernetes-admin")
