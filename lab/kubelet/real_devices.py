"""Which devices a real kubelet gave to a pod, asked where every program of its machine asks."""

import logging
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from lab.hosts.control import short_path
from lab.kubelet import device_api
from lab.kubelet_api import podresources_pb2 as api
from lab.nodes.folder import NodesFolder

_SECONDS = 5.0
_log = logging.getLogger(__name__)


def pod_resources(nodes: Path, name: str) -> Path:
    """The socket of a node in the folder of the real nodes: what the node has below /var/lib."""
    var_lib = NodesFolder(nodes).node(name).var_lib
    return var_lib / "kubelet" / "pod-resources" / device_api.SOCKET


class SilentError(Exception):
    """The kubelet does not answer: it is restarted, or does not run."""


@dataclass(frozen=True, slots=True)
class RealDevices:
    """The socket of one kubelet's PodResources, as this process finds it."""

    socket: Path

    async def of(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """Ids of the devices that the pod's containers have; None when the kubelet has no such pod.

        Raises:
            SilentError: it does not answer.
        """
        if not self.socket.exists():
            raise SilentError(f"{self.socket} is not there")
        # A folder of a lab may lie too deep for a socket's address.
        with short_path(self.socket) as path:
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                try:
                    ask = device_api.method(channel, "PodResourcesLister", "List")
                    answer = await ask(api.ListPodResourcesRequest(), timeout=_SECONDS)
                except grpc.aio.AioRpcError as error:
                    raise SilentError(f"{self.socket}: {error.details()}") from error
        for pod in answer.pod_resources:
            if (pod.namespace, pod.name) == (namespace, name):
                held = (device for container in pod.containers for device in container.devices)
                return tuple(id for device in held for id in device.device_ids)
        return None
