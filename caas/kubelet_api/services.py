"""The kubelet's gRPC services, called and served as the descriptors of its `.proto` files say."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from caas.kubelet_api import deviceplugin_pb2, podresources_pb2

API_VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
KUBELET_SOCKET = "kubelet.sock"

Context = grpc.aio.ServicerContext[Any, Any]

_SERVICES = {
    **deviceplugin_pb2.DESCRIPTOR.services_by_name,
    **podresources_pb2.DESCRIPTOR.services_by_name,
}


def method(channel: grpc.aio.Channel, service: str, name: str) -> Callable[..., Any]:
    """A method of a service that answers once, to be called over a channel."""
    found = _SERVICES[service].methods_by_name[name]
    called: Callable[..., Any] = channel.unary_unary(
        f"/{_SERVICES[service].full_name}/{name}",
        request_serializer=GetMessageClass(found.input_type).SerializeToString,
        response_deserializer=GetMessageClass(found.output_type).FromString,
    )
    return called


def serve(server: grpc.aio.Server, service: str, answers: Mapping[str, Callable[..., Any]]) -> None:
    """Let the server answer these methods of a service."""
    handlers = {}
    for name, answer in answers.items():
        found = _SERVICES[service].methods_by_name[name]
        make = (
            grpc.unary_stream_rpc_method_handler
            if found.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = make(
            answer,
            request_deserializer=GetMessageClass(found.input_type).FromString,
            response_serializer=GetMessageClass(found.output_type).SerializeToString,
        )
    full_name = _SERVICES[service].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(full_name, handlers),))
