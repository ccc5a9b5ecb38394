"""A release of Usernetes for simulated hosts: an archive with the layout of the real one, and nothing in it.

Folder `usernetes-<tag>` as in GitHub's archives of a tag; Makefile, Dockerfile and compose file say what the
stand-in of `make` looks for. Made anew byte for byte the same, so that its digest can be pinned.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from functools import cache

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
    """The archive of a tag."""
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
