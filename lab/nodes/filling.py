"""Fills a store of images: `python -m lab.nodes.filling STORE`, in mount and process namespaces of its own.

STORE has a root folder, empty or of an older store, and `request.json`. Afterwards the root folder holds the
images of the archives that are asked for and nothing of others, and no process is left.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.control_plane.processes import last_words_of
from lab.images import archive
from lab.nodes import loading

_SOCKET = "/run/containerd/containerd.sock"
_SECONDS = 300.0
_POLL_SECONDS = 0.02
_UNREFERENCED = "lab.local/unreferenced:1"
_WITHOUT = (
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.images",
    "io.containerd.cri.v1.runtime",
    "io.containerd.nri.v1.nri",
)
"""Plugins that are for running containers."""


class FillingError(Exception):
    """The store cannot be filled; one sentence."""


def configuration(store: Path) -> str:
    return f"""\
version = 3
root = '{store}/root'
state = '/run/containerd'
disabled_plugins = {json.dumps(_WITHOUT)}

[grpc]
  address = '{_SOCKET}'

[plugins.'io.containerd.internal.v1.opt']
  path = '{store}/opt'
"""


def fill(store: Path, request: Mapping[str, Any]) -> None:
    """Do it.

    Raises:
        FillingError: containerd does not start.
        CalledProcessError: an archive is not taken.
    """
    # Nothing is made on the machine: its sockets lie here.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True, capture_output=True)
    told = store / "containerd.toml"
    told.write_text(configuration(store))
    log = store / "containerd.log"
    with log.open("wb") as out:
        containerd = subprocess.Popen(
            [request["containerd"], "--config", told], stdout=out, stderr=out
        )
    try:
        _wait(containerd, log)
        _take([request["ctr"]], request["images"], store)
    finally:
        containerd.terminate()
        containerd.wait()


def _take(ctr: Sequence[str], images: Sequence[str], store: Path) -> None:
    loading.load(ctr, images, {}, store / "images.json", store / "root")
    wanted = {archive.name_of(Path(image)) for image in images}
    images_of = [*ctr, "--namespace", "k8s.io", "images"]
    listed = subprocess.run(
        [*images_of, "list", "--quiet"], check=True, capture_output=True, text=True
    )
    # What an image was before has lost its name; only a removal that waits takes such things away.
    loading.run([*images_of, "tag", "--force", min(wanted), _UNREFERENCED])
    loading.run([*images_of, "rm", "--sync", *({*listed.stdout.split()} - wanted), _UNREFERENCED])


def _wait(containerd: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while not _answers():
        if containerd.poll() is not None or time.monotonic() > deadline:
            said = last_words_of(log.read_text(errors="replace"))
            raise FillingError(f"containerd does not start: {said}")
        time.sleep(_POLL_SECONDS)


def _answers() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(_SOCKET) == 0


def main(store: Path) -> None:
    try:
        fill(store, json.loads((store / "request.json").read_bytes()))
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        sys.exit(f"`{command}` failed: {(error.stderr or '').strip()}")
    except (FillingError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
