"""Certificates and the kubeconfig of a simulated Usernetes cluster."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.kubeconfig import of_lab

_VALID = timedelta(days=365)
"""Leaf certificates of kubeadm are valid for a year."""


def certificate(name: str) -> str:
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


_KUBERNETES = {"gen2-v20250210.0": "v1.32.1", "gen3-v20260902.0": "v1.37.0"}
"""Release of Kubernetes by tag: `FROM kindest/node:` in the Dockerfile of each tag."""
_FILES = {
    "Makefile": "# Stand-in of a simulated host: `make` is answered by its server.\n",
    "docker-compose.yaml": "services:\n  node:\n    build: .\n",
    "Makefile.d/sync-external-ip.sh": "#!/bin/bash\n",
    "kubeadm-config.yaml": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n",
}
_MODES = {"Makefile.d/sync-external-ip.sh": 0o755}


def kubernetes(tag: str) -> str:
    """Release of Kubernetes in the node image of a tag."""
    return _KUBERNETES.get(tag, "v1.35.0")


@cache
def archive(tag: str) -> bytes:
    contents = {**_FILES, "Dockerfile": f"FROM kindest/node:{kubernetes(tag)}\n# {tag}\n"}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for name, text in contents.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"usernetes-{tag}/{name}")
            entry.size, entry.mode = len(data), _MODES.get(name, 0o644)
            made.addfile(entry, io.BytesIO(data))
    packed = io.BytesIO()
    # Stored: what a compressor makes of it is another thing with the next release of zlib.
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=0) as stream:
        stream.write(raw.getvalue())
    return packed.getvalue()


def checksum(tag: str) -> str:
    """sha256 of the archive: what a configuration pins in the lab."""
    return hashlib.sha256(archive(tag)).hexdigest()
