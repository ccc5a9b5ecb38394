"""In place of NVIDIA's device plugin: `python -m lab.rootless_node.device_plugin FOLDER UUID...`.

It offers GPUs that it is told of, as NVIDIA_VISIBLE_DEVICES. FOLDER is the kubelet's folder for plugins, as
this machine reaches it: below `/proc/<process of the node>/root`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from lab.kubelet.device_api import keep_registered
from lab.usernetes.device_plugin import WHOLE, ByVariable

_LOOK_SECONDS = 0.2


async def serve(folder: Path, uuids: list[str]) -> None:
    """Offer these GPUs for as long as the node is there."""
    devices = ByVariable(WHOLE)
    devices.offer(uuids)
    registering = asyncio.create_task(keep_registered(folder, WHOLE, devices.answers))
    while folder.exists():
        await asyncio.sleep(_LOOK_SECONDS)
    registering.cancel()


def main() -> None:
    """Serve until killed, or until the node has ended."""
    # To the account, root of this machine is nobody: the kubelet must be able to write to the socket.
    os.umask(0)
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()
