"""Pulumi's published gRPC stubs, without the rest of its SDK.

`import pulumi.runtime.proto` runs the whole SDK first (half a second of CPU time on each command).
The generated modules need only each other, so they are loaded from the same files as a package of
their own.
"""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulumi.runtime.proto import (
        alias_pb2,
        engine_pb2,
        engine_pb2_grpc,
        plugin_pb2,
        provider_pb2,
        provider_pb2_grpc,
        resource_pb2,
        resource_pb2_grpc,
        status_pb2,
    )
else:
    _PACKAGE = "engine._stubs"

    def _package() -> None:
        spec = importlib.util.find_spec("pulumi")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("the package `pulumi` is not installed in this environment")
        package = types.ModuleType(_PACKAGE)
        folder = pathlib.Path(spec.submodule_search_locations[0]) / "runtime" / "proto"
        package.__path__ = [str(folder)]
        sys.modules.setdefault(_PACKAGE, package)

    _package()
    alias_pb2 = importlib.import_module(f"{_PACKAGE}.alias_pb2")
    engine_pb2 = importlib.import_module(f"{_PACKAGE}.engine_pb2")
    engine_pb2_grpc = importlib.import_module(f"{_PACKAGE}.engine_pb2_grpc")
    plugin_pb2 = importlib.import_module(f"{_PACKAGE}.plugin_pb2")
    provider_pb2 = importlib.import_module(f"{_PACKAGE}.provider_pb2")
    provider_pb2_grpc = importlib.import_module(f"{_PACKAGE}.provider_pb2_grpc")
    resource_pb2 = importlib.import_module(f"{_PACKAGE}.resource_pb2")
    resource_pb2_grpc = importlib.import_module(f"{_PACKAGE}.resource_pb2_grpc")
    status_pb2 = importlib.import_module(f"{_PACKAGE}.status_pb2")

__all__ = [
    "CHANNEL_OPTIONS",
    "alias_pb2",
    "engine_pb2",
    "engine_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "resource_pb2",
    "resource_pb2_grpc",
    "status_pb2",
]

CHANNEL_OPTIONS = [
    # As the SDK has them: a kubeconfig or a pickled provider may be larger than gRPC's 4 MiB.
    ("grpc.max_receive_message_length", 400 * 1024 * 1024),
    ("grpc.max_send_message_length", 400 * 1024 * 1024),
    # A call may wait in the queue while all workers are busy with slow providers.
    ("grpc.server_max_unrequested_time_in_server", 30 * 60),
    ("grpc.enable_http_proxy", 0),
]
