"""Certificates and the kubeconfig of a simulated Usernetes cluster."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from lab.hosts import archives
from lab.hosts.machine import FILES
from lab.kubeconfig import of_lab


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
_CHECKOUT = (
    "Makefile",
    "docker-compose.yaml",
    "Makefile.d/sync-external-ip.sh",
    "kubeadm-config.yaml",
)


def kubernetes(tag: str) -> str:
    """Release of Kubernetes in the node image of a tag."""
    return _KUBERNETES.get(tag, "v1.35.0")


@cache
def archive(tag: str) -> bytes:
    folder = FILES / "usernetes/checkout"
    contents = {name: (folder / name).read_text() for name in _CHECKOUT}
    contents |= {"Dockerfile": f"FROM kindest/node:{kubernetes(tag)}\n# {tag}\n"}
    return archives.packed(
        {
            f"usernetes-{tag}/{name}": (text, 0o755 if name.endswith(".sh") else 0o644)
            for name, text in contents.items()
        }
    )


def checksum(tag: str) -> str:
    """sha256 of the archive: what a configuration pins in the lab."""
    return hashlib.sha256(archive(tag)).hexdigest()
