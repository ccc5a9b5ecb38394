"""NVIDIA's device plugin inside a rootless node, as a process of its pod.

It finds the GPUs that its container sees, and offers them by their UUIDs as NVIDIA_VISIBLE_DEVICES;
without any it ends with the words of the real one, or waits for ever, as FAIL_ON_INIT_ERROR says. Another
strategy than those is refused. Words after NVIDIA/k8s-device-plugin, issues 1220 and 1470.
"""

import asyncio
import os
import sys
from pathlib import Path

from lab.gpu_operator.plugin import Devices
from lab.kubelet.device_api import Context, keep_registered
from lab.kubelet.folder import KubeletFolder
from lab.kubelet_api import deviceplugin_pb2 as api
from lab.pods import rootless
from lab.pods.names import FOLDER_VARIABLE, NODE_VARIABLE, VISIBLE
from lab.pods.rootless import InNode

WHOLE = "nvidia.com/gpu"
"""The resource of whole GPUs."""
_LOOK_SECONDS = 0.3
_PLAYED = {"DEVICE_LIST_STRATEGY": "envvar", "DEVICE_ID_STRATEGY": "uuid"}
_NO_NVML = (
    "W1122 00:00:00.000000       1 rm.go:109] NVML not detected: could not load NVML library: "
    "libnvidia-ml.so.1: cannot open shared object file: No such file or directory\n"
    "E1122 00:00:00.000000       1 factory.go:112] Incompatible strategy detected auto\n"
    "E1122 00:00:00.000000       1 factory.go:113] If this is a GPU node, did you configure the NVIDIA "
    "Container Toolkit?\n"
)
_FAILED = (
    "E1122 00:00:00.000000       1 main.go:173] error starting plugins: error getting plugins: unable to "
    "create plugins: failed to construct resource managers: invalid device discovery strategy"
)
_WAITS = "I1122 00:00:00.000000       1 main.go:363] No devices found. Waiting indefinitely."


class ByVariable(Devices):
    """Devices that are handed out as the variable NVIDIA_VISIBLE_DEVICES."""

    async def allocate(
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """The UUIDs, for the runtime to find CDI devices of these names."""
        del context
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(envs={VISIBLE: ",".join(one.devices_ids)})
                for one in request.container_requests
            ]
        )


def say(text: str) -> None:
    print(text, flush=True)


async def serve(kubelets: Path, node: str) -> None:
    """Offer what the container sees, as long as it does."""
    devices = ByVariable(WHOLE)
    folder = KubeletFolder(kubelets).reachable.node(node).device_plugins
    registering = asyncio.create_task(keep_registered(folder, WHOLE, devices.answers))
    try:
        while True:
            devices.offer(seen(inside(kubelets, node)))
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        registering.cancel()


def inside(kubelets: Path, node: str) -> InNode:
    return rootless.read(kubelets).get(node, InNode())


def seen(node: InNode) -> tuple[str, ...]:
    """The GPUs that a container with all of them sees."""
    return node.gpus if node.injects else ()


def main() -> int:
    kubelets, node = Path(os.environ[FOLDER_VARIABLE]), os.environ[NODE_VARIABLE]
    for name, played in _PLAYED.items():
        if os.environ.get(name, played) != played:
            say(f"the stand-in of the device plugin plays {name}={played} only")
            return 2
    say("I1122 00:00:00.000000       1 main.go:264] Starting Plugins.")
    if not seen(inside(kubelets, node)):
        say(_NO_NVML + _FAILED)
        if os.environ.get("FAIL_ON_INIT_ERROR", "true") == "true":
            return 1
        say(_WAITS)
        asyncio.run(asyncio.Event().wait())
    say(f"I1122 00:00:00.000000       1 server.go:197] Starting GRPC server for '{WHOLE}'")
    asyncio.run(serve(kubelets, node))
    return 0


if __name__ == "__main__":
    sys.exit(main())
