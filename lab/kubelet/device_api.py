"""The kubelet's gRPC services `v1beta1` and `v1`, called and served as Kubernetes' own `.proto` files say.

Only what protoc made of those files is shared with the product; names and types of methods are read from
their descriptors.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from lab.kubelet_api import deviceplugin_pb2, podresources_pb2

VERSION = "v1beta1"
HEALTHY = "Healthy"
SOCKET = "kubelet.sock"
"""Of the kubelet in its folder of device plugins, and in that of its PodResources."""

Context = grpc.aio.ServicerContext[Any, Any]

_SERVICES = {
    **deviceplugin_pb2.DESCRIPTOR.services_by_name,
    **podresources_pb2.DESCRIPTOR.services_by_name,
}
_LOOK_SECONDS = 0.5


def serve(server: grpc.aio.Server, service: str, answers: Mapping[str, Callable[..., Any]]) -> None:
    """Let the server answer these methods of a service."""
    handlers = {}
    for name, answer in answers.items():
        method = _SERVICES[service].methods_by_name[name]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = make(
            answer,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    full_name = _SERVICES[service].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(full_name, handlers),))


def method(channel: grpc.aio.Channel, service: str, name: str) -> Callable[..., Any]:
    """A method of a service, to be called over a channel."""
    found = _SERVICES[service].methods_by_name[name]
    make = channel.unary_stream if found.server_streaming else channel.unary_unary
    called: Callable[..., Any] = make(
        f"/{_SERVICES[service].full_name}/{name}",
        request_serializer=GetMessageClass(found.input_type).SerializeToString,
        response_deserializer=GetMessageClass(found.output_type).FromString,
    )
    return called


async def keep_registered(
    folder: Path, resource: str, answers: Mapping[str, Callable[..., Any]]
) -> None:
    """Serve a device plugin in the kubelet's folder and keep it registered, until cancelled.

    A kubelet that starts removes the sockets of all plugins and makes its own anew; plugins see that.
    """
    kubelet, socket = folder / SOCKET, folder / f"stand-in-{secrets.token_hex(4)}.sock"
    request = deviceplugin_pb2.RegisterRequest(
        version=VERSION,
        endpoint=socket.name,
        resource_name=resource,
        options=deviceplugin_pb2.DevicePluginOptions(get_preferred_allocation_available=True),
    )
    server, known = None, None
    try:
        while True:
            now = _identity(kubelet)
            if now is not None and (now != known or not socket.exists()):
                if server is not None:
                    await server.stop(grace=0)
                server = grpc.aio.server()
                serve(server, "DevicePlugin", answers)
                server.add_insecure_port(f"unix:{socket}")
                await server.start()
                known = now if await _register(kubelet, request) else None
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        if server is not None:
            await server.stop(grace=0)
        socket.unlink(missing_ok=True)


async def _register(kubelet: Path, request: deviceplugin_pb2.RegisterRequest) -> bool:
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        try:
            await method(channel, "Registration", "Register")(request, timeout=5.0)
        except grpc.aio.AioRpcError:
            return False
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
