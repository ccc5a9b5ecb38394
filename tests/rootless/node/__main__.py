"""`python -m tests.rootless.node FOLDER LAB NAME`: a rootless node without GPUs until it is interrupted.

FOLDER is for what the node keeps and its logs, LAB that of a running control plane.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

from lab import images
from lab.control_plane import NodeSpec
from tests.rootless.node.node import RootlessSpec, running


def main(folder: str, lab: str, name: str) -> None:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    # Before anything is made: it is undone on the way out, whenever that begins.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = Path(folder).resolve()
    with contextlib.suppress(KeyboardInterrupt):
        spec = RootlessSpec(Path(lab).resolve(), NodeSpec(name), images.basic(say))
        place.mkdir(parents=True, exist_ok=True)
        with running(place, spec, say) as node:
            print(f"{name} is Ready; its kubelet is at 127.0.0.1:{node.port}", flush=True)
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
