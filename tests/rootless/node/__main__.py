"""`python -m tests.rootless.node FOLDER LAB NAME`: a rootless node without GPUs until it is interrupted."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path

from lab import images
from lab.control_plane import NodeSpec
from lab.tools import ToolError
from tests.rootless.node.lifecycle import running
from tests.rootless.node.model import RootlessNodeError, RootlessSpec


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rootless.node", description=__doc__)
    parser.add_argument("folder", type=Path, help="for what the node keeps and its logs")
    parser.add_argument("lab", type=Path, help="the folder of a running control plane")
    parser.add_argument("name", help="of the node")
    given = parser.parse_args()
    # Before anything is made: it is undone on the way out, whenever that begins.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        archives = images.basic(_say)
        spec = RootlessSpec(given.lab.resolve(), NodeSpec(given.name), archives)
        given.folder.mkdir(parents=True, exist_ok=True)
        with running(given.folder.resolve(), spec, _say) as node:
            print(f"{spec.name} is Ready; its kubelet is at 127.0.0.1:{node.port}", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    except KeyboardInterrupt:
        return 130
    except (RootlessNodeError, ToolError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
