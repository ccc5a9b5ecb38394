"""The kubelet's PodResources service of one node."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from lab.kubelet import device_api
from lab.kubelet.device_api import Context
from lab.kubelet.device_manager import DeviceManager
from lab.kubelet.folder import NodeFolder
from lab.kubelet_api import podresources_pb2 as api

Pods = Callable[[], Iterable[Mapping[str, Any]]]


class PodResources:
    """Tells which containers have which devices. `pods` gives those of the node that have not ended."""

    def __init__(self, folder: NodeFolder, devices: DeviceManager, pods: Pods) -> None:
        self._socket = folder.pod_resources
        self._devices = devices
        self._pods = pods
        self._server: grpc.aio.Server | None = None

    async def open(self) -> None:
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        answers: dict[str, Callable[..., Any]] = {
            "List": self.list_all,
            "GetAllocatableResources": self.allocatable,
            "Get": self.get,
        }
        device_api.serve(self._server, "PodResourcesLister", answers)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)

    async def list_all(
        self, request: api.ListPodResourcesRequest, context: Context
    ) -> api.ListPodResourcesResponse:
        """The devices of every pod that has not ended."""
        del request, context
        return api.ListPodResourcesResponse(pod_resources=[self._of(pod) for pod in self._pods()])

    async def allocatable(
        self, request: api.AllocatableResourcesRequest, context: Context
    ) -> api.AllocatableResourcesResponse:
        del request, context
        return api.AllocatableResourcesResponse(
            devices=[
                api.ContainerDevices(resource_name=resource, device_ids=devices)
                for resource, devices in self._devices.healthy().items()
            ]
        )

    async def get(
        self, request: api.GetPodResourcesRequest, context: Context
    ) -> api.GetPodResourcesResponse:
        for pod in self._pods():
            metadata = pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (
                request.pod_namespace,
                request.pod_name,
            ):
                return api.GetPodResourcesResponse(pod_resources=self._of(pod))
        await context.abort(
            grpc.StatusCode.NOT_FOUND,
            f"pod {request.pod_name} in namespace {request.pod_namespace} not found",
        )
        raise AssertionError("abort raises")

    def _of(self, pod: Mapping[str, Any]) -> api.PodResources:
        metadata = pod["metadata"]
        held = self._devices.of_pod(metadata["uid"])
        return api.PodResources(
            name=metadata["name"],
            namespace=metadata["namespace"],
            containers=[
                api.ContainerResources(
                    name=container["name"],
                    devices=[
                        api.ContainerDevices(resource_name=a.resource, device_ids=a.devices)
                        for a in held
                        if a.container == container["name"]
                    ],
                )
                for container in pod["spec"]["containers"]
            ],
        )
