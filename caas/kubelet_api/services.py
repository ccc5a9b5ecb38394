"""The kubelet's gRPC services with types: what calls them, and what serves them.

What protoc makes of services for Python has no types, so the few methods are named here; a test
compares them with the `.proto` files.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import Message

from caas.kubelet_api import deviceplugin_pb2 as plugin
from caas.kubelet_api import podresources_pb2 as resources

API_VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
KUBELET_SOCKET = "kubelet.sock"

REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
POD_RESOURCES = "v1.PodResourcesLister"

Context = grpc.aio.ServicerContext[Any, Any]
_Types = tuple[type[Message], type[Message]]

METHODS: Mapping[str, Mapping[str, _Types]] = {
    REGISTRATION: {"Register": (plugin.RegisterRequest, plugin.Empty)},
    DEVICE_PLUGIN: {
        "GetDevicePluginOptions": (plugin.Empty, plugin.DevicePluginOptions),
        "ListAndWatch": (plugin.Empty, plugin.ListAndWatchResponse),
        "GetPreferredAllocation": (
            plugin.PreferredAllocationRequest,
            plugin.PreferredAllocationResponse,
        ),
        "Allocate": (plugin.AllocateRequest, plugin.AllocateResponse),
        "PreStartContainer": (plugin.PreStartContainerRequest, plugin.PreStartContainerResponse),
    },
    POD_RESOURCES: {
        "List": (resources.ListPodResourcesRequest, resources.ListPodResourcesResponse),
        "GetAllocatableResources": (
            resources.AllocatableResourcesRequest,
            resources.AllocatableResourcesResponse,
        ),
        "Get": (resources.GetPodResourcesRequest, resources.GetPodResourcesResponse),
    },
}
"""Request and response of every method, by full name of the service."""


class RegistrationService(Protocol):
    """What a kubelet answers to plugins."""

    async def register(self, request: plugin.RegisterRequest, context: Context) -> plugin.Empty:
        """Take the plugin in, or abort the call."""


class DevicePluginService(Protocol):
    """What a plugin answers to the kubelet."""

    async def options(self, request: plugin.Empty, context: Context) -> plugin.DevicePluginOptions:
        """Which optional calls the kubelet should make."""

    def list_and_watch(
        self, request: plugin.Empty, context: Context
    ) -> AsyncIterator[plugin.ListAndWatchResponse]:
        """The whole list, and again whenever it changes."""

    async def preferred_allocation(
        self, request: plugin.PreferredAllocationRequest, context: Context
    ) -> plugin.PreferredAllocationResponse:
        """Which of the available devices the kubelet had best take."""

    async def allocate(
        self, request: plugin.AllocateRequest, context: Context
    ) -> plugin.AllocateResponse:
        """Give the devices to a container, or abort the call."""

    async def pre_start_container(
        self, request: plugin.PreStartContainerRequest, context: Context
    ) -> plugin.PreStartContainerResponse:
        """Called before a container starts, if the options ask for it."""


class PodResourcesService(Protocol):
    """What a kubelet tells about its containers."""

    async def list_all(
        self, request: resources.ListPodResourcesRequest, context: Context
    ) -> resources.ListPodResourcesResponse:
        """The devices of every pod that has not ended."""

    async def allocatable(
        self, request: resources.AllocatableResourcesRequest, context: Context
    ) -> resources.AllocatableResourcesResponse:
        """All healthy devices, whoever has them."""

    async def get(
        self, request: resources.GetPodResourcesRequest, context: Context
    ) -> resources.GetPodResourcesResponse:
        """The devices of one pod; aborts when it is not known."""


class RegistrationStub:
    """Calls a kubelet's registration."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.register: Callable[..., Awaitable[plugin.Empty]] = _unary(
            channel, REGISTRATION, "Register"
        )


class DevicePluginStub:
    """Calls a device plugin."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.options: Callable[..., Awaitable[plugin.DevicePluginOptions]] = _unary(
            channel, DEVICE_PLUGIN, "GetDevicePluginOptions"
        )
        self.preferred_allocation: Callable[..., Awaitable[plugin.PreferredAllocationResponse]] = (
            _unary(channel, DEVICE_PLUGIN, "GetPreferredAllocation")
        )
        self.allocate: Callable[..., Awaitable[plugin.AllocateResponse]] = _unary(
            channel, DEVICE_PLUGIN, "Allocate"
        )
        request, response = METHODS[DEVICE_PLUGIN]["ListAndWatch"]
        self.list_and_watch: Callable[..., AsyncIterable[plugin.ListAndWatchResponse]] = (
            channel.unary_stream(
                f"/{DEVICE_PLUGIN}/ListAndWatch",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
        )


class PodResourcesStub:
    """Asks a kubelet which containers have which devices."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.list_all: Callable[..., Awaitable[resources.ListPodResourcesResponse]] = _unary(
            channel, POD_RESOURCES, "List"
        )
        self.allocatable: Callable[..., Awaitable[resources.AllocatableResourcesResponse]] = _unary(
            channel, POD_RESOURCES, "GetAllocatableResources"
        )
        self.get: Callable[..., Awaitable[resources.GetPodResourcesResponse]] = _unary(
            channel, POD_RESOURCES, "Get"
        )


def serve_registration(server: grpc.aio.Server, service: RegistrationService) -> None:
    """Let the server answer plugins that register."""
    _serve(server, REGISTRATION, {"Register": service.register})


def serve_device_plugin(server: grpc.aio.Server, service: DevicePluginService) -> None:
    """Let the server answer as a device plugin."""
    _serve(
        server,
        DEVICE_PLUGIN,
        {
            "GetDevicePluginOptions": service.options,
            "ListAndWatch": service.list_and_watch,
            "GetPreferredAllocation": service.preferred_allocation,
            "Allocate": service.allocate,
            "PreStartContainer": service.pre_start_container,
        },
    )


def serve_pod_resources(server: grpc.aio.Server, service: PodResourcesService) -> None:
    """Let the server tell which containers have which devices."""
    _serve(
        server,
        POD_RESOURCES,
        {
            "List": service.list_all,
            "GetAllocatableResources": service.allocatable,
            "Get": service.get,
        },
    )


def _unary(channel: grpc.aio.Channel, service: str, method: str) -> Callable[..., Any]:
    request, response = METHODS[service][method]
    return channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )


def _serve(
    server: grpc.aio.Server, service: str, behaviours: Mapping[str, Callable[..., Any]]
) -> None:
    handlers = {}
    for method, behaviour in behaviours.items():
        request, response = METHODS[service][method]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method == "ListAndWatch"
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[method] = make(
            behaviour,
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
