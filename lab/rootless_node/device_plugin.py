"""In place of NVIDIA's device plugin: `python -m lab.rootless_node.device_plugin FOLDER UUID...`.

It offers GPUs that it is told of, as NVIDIA_VISIBLE_DEVICES. FOLDER is the kubelet's folder for plugins, as
this machine reaches it: below `/proc/<process of the node>/root`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from caas.device_plugin.registration import Registration
from gpuclusters.domain.ladder_inputs import WHOLE
from lab.usernetes.device_plugin import ByVariable


def main(folder: Path, uuids: list[str]) -> None:
    """Serve until killed."""
    # To the account, root of this machine is nobody: the kubelet must be able to write to the socket.
    os.umask(0)
    devices = ByVariable(WHOLE)
    devices.offer(uuids)
    asyncio.run(Registration(folder, WHOLE, devices).run())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
