"""Who a node is: certificates by the authority of its lab's control plane."""

from __future__ import annotations

import shutil

from lab.control_plane import pki
from lab.control_plane.layout import Layout
from lab.nodes.folder import RealNodeFolder

_GROUP = "system:nodes"


def issue(layout: Layout, folder: RealNodeFolder, address: str) -> None:
    """Certificates with which the node's kubelet calls the API server and is called by it."""
    folder.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    user = f"system:node:{folder.name}"
    pki.issue(layout, folder.pki / "client.crt", pki.Client("client", user, _GROUP))
    pki.issue(
        layout,
        folder.pki / "serving.crt",
        pki.Client("serving", user, _GROUP),
        names=[folder.name],
        addresses=[address],
    )
    shutil.copyfile(layout.certificate(pki.CA), folder.pki / "ca.crt")
