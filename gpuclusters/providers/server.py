"""Our provider, served to Pulumi's engine over gRPC: `python -m gpuclusters.providers.server ENGINE`.

It answers as many calls at a time as the engine makes (`--parallel`), where the SDK's process for dynamic
providers answers four; it says what went wrong in our words alone; and it ends with its engine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import grpc
from google.protobuf import empty_pb2
from pulumi.dynamic import Config, ConfigureRequest, ResourceProvider
from pulumi.runtime import Settings, configure, rpc
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpuclusters.providers.properties import StepError, explained
from gpuclusters.providers.resource import PACKAGE

CALLS = 256
"""At a time, more than any `--parallel` that one computer's engine is given; an idle thread costs nothing."""
CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Between two connections. A server drops one on which nobody speaks (gRPC after 120 s)."""
VERSION = "1.0.0"
CONFIGURATION = frozenset({"ssh-private-key"})
"""Keys of the stack that the provider reads. Others of its namespace are not kept in the provider's state."""

PROVIDERS: Mapping[str, str] = {
    "CdiSpec": "gpuclusters.cdi.resource:CdiSpecProvider",
    "FabricPartitions": "gpuclusters.fabric.resource:FabricPartitionsProvider",
    "FirstLogin": "gpuclusters.gcp.resource:FirstLoginProvider",
    "FleetPreflight": "gpuclusters.preflight.resource:FleetPreflightProvider",
    "GcpMachine": "gpuclusters.gcp.resource:GcpMachineProvider",
    "GcpQuota": "gpuclusters.gcp.resource:GcpQuotaProvider",
    "GpuDriver": "gpuclusters.driver.resource:GpuDriverProvider",
    "GpuOperatorCrds": "gpuclusters.gpu_operator.resource:GpuOperatorCrdsProvider",
    "GpuOperatorPreflight": "gpuclusters.gpu_operator.resource:GpuOperatorPreflightProvider",
    "GpuReadiness": "gpuclusters.gpu_operator.resource:GpuReadinessProvider",
    "HostBoot": "gpuclusters.boot.resource:HostBootProvider",
    "HostFile": "gpuclusters.host.resource:HostFileProvider",
    "MigLayout": "gpuclusters.gpu_operator.resource:MigLayoutProvider",
    "NodeMaintenance": "gpuclusters.maintenance.resource:NodeMaintenanceProvider",
    "OnDemandTenancies": "gpuclusters.tenancy.resource:OnDemandTenanciesProvider",
    "PluginGate": "gpuclusters.proof.resource:PluginGateProvider",
    "Preflight": "gpuclusters.preflight.resource:PreflightProvider",
    "ProofRun": "gpuclusters.proof.resource:ProofRunProvider",
    "Rke2Node": "gpuclusters.rke2.resource:Rke2NodeProvider",
    "Rke2Tokens": "gpuclusters.rke2.resource:Rke2TokensProvider",
    "RootlessHost": "gpuclusters.rootless.resource:RootlessHostProvider",
    "ServiceVm": "gpuclusters.service_vm.resource:ServiceVmProvider",
    "SshHostKey": "gpuclusters.gcp.resource:SshHostKeyProvider",
    "TenancyPolicy": "gpuclusters.tenancy.resource:TenancyPolicyProvider",
    "UsernetesNode": "gpuclusters.usernetes.resource:UsernetesNodeProvider",
    "TrainingProof": "gpuclusters.proof.resource:TrainingProofProvider",
    "VfioBinding": "gpuclusters.vfio.resource:VfioBindingProvider",
}
"""Who keeps a type; the types stand in users' state."""

Properties = dict[str, Any]
R = TypeVar("R")


def _answered(call: Callable[..., R]) -> Callable[..., R]:
    """A call that fails with our sentence."""

    @wraps(call)
    def wrapper(self: Servicer, request: Any, context: grpc.ServicerContext) -> R:
        try:
            with explained(f"{call.__name__} {getattr(request, 'urn', '')}", ()):
                return call(self, request, context)
        except StepError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise

    return wrapper


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """Takes calls apart and hands them to the provider of the type."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._config: Properties = {}
        self._providers: dict[str, ResourceProvider] = {}
        self._lock = threading.Lock()

    def GetPluginInfo(self, _request: Any, _context: Any) -> plugin_pb2.PluginInfo:  # noqa: N802
        return plugin_pb2.PluginInfo(version=VERSION)

    def CheckConfig(self, request: Any, _context: Any) -> provider_pb2.CheckResponse:  # noqa: N802
        given = _read(request.news)
        kept = {key: value for key, value in given.items() if key in CONFIGURATION}
        return provider_pb2.CheckResponse(inputs=_struct(kept))

    def DiffConfig(self, request: Any, _context: Any) -> provider_pb2.DiffResponse:  # noqa: N802
        """Another key is taken by the same provider. Where nothing differs the engine keeps the old one."""
        answer = provider_pb2.DiffResponse
        differs = request.olds != request.news
        return answer(changes=answer.DIFF_SOME if differs else answer.DIFF_NONE)

    def Configure(self, request: Any, _context: Any) -> provider_pb2.ConfigureResponse:  # noqa: N802
        given = rpc.deserialize_properties(request.args)
        self._config = {
            f"{PACKAGE}:{k.rpartition(':')[2]}": rpc.unwrap_rpc_secret(v) for k, v in given.items()
        }
        return provider_pb2.ConfigureResponse(acceptSecrets=False)

    @_answered
    def Check(self, request: Any, _context: Any) -> provider_pb2.CheckResponse:  # noqa: N802
        news = _read(request.news)
        olds = _read(request.olds)
        result = self._provider(request.urn).check(olds, news)
        failures = [
            provider_pb2.CheckFailure(property=f.property, reason=f.reason) for f in result.failures
        ]
        return provider_pb2.CheckResponse(inputs=_struct(result.inputs), failures=failures)

    @_answered
    def Diff(self, request: Any, _context: Any) -> provider_pb2.DiffResponse:  # noqa: N802
        news = _read(request.news)
        olds = _read(request.olds)
        result = self._provider(request.urn).diff(request.id, olds, news)
        answer = provider_pb2.DiffResponse
        return answer(
            changes=answer.DIFF_SOME if result.changes else answer.DIFF_NONE,
            replaces=result.replaces or (),
            deleteBeforeReplace=bool(result.delete_before_replace),
        )

    @_answered
    def Create(self, request: Any, _context: Any) -> provider_pb2.CreateResponse:  # noqa: N802
        props = rpc.deserialize_properties(request.properties)
        result = self._provider(request.urn).create(props)
        return provider_pb2.CreateResponse(id=result.id, properties=_struct(result.outs or {}))

    @_answered
    def Update(self, request: Any, _context: Any) -> provider_pb2.UpdateResponse:  # noqa: N802
        olds = rpc.deserialize_properties(request.olds)
        news = rpc.deserialize_properties(request.news)
        result = self._provider(request.urn).update(request.id, olds, news)
        return provider_pb2.UpdateResponse(properties=_struct(result.outs or {}))

    @_answered
    def Read(self, request: Any, _context: Any) -> provider_pb2.ReadResponse:  # noqa: N802
        # A refresh tells the outputs; `.get()` tells nothing but inputs.
        given = request.properties if request.properties.fields else request.inputs
        props = rpc.deserialize_properties(given)
        result = self._provider(request.urn).read(request.id, props)
        inputs = None if result.inputs is None else _struct(result.inputs)
        outs = _struct(result.outs or {})
        return provider_pb2.ReadResponse(id=result.id or "", properties=outs, inputs=inputs)

    @_answered
    def Delete(self, request: Any, _context: Any) -> empty_pb2.Empty:  # noqa: N802
        props = rpc.deserialize_properties(request.properties)
        self._provider(request.urn).delete(request.id, props)
        return empty_pb2.Empty()

    def Cancel(self, _request: Any, _context: Any) -> empty_pb2.Empty:  # noqa: N802
        """Steps that have begun are finished; the engine begins no others."""
        return empty_pb2.Empty()

    def _provider(self, urn: str) -> ResourceProvider:
        configure(self._settings)  # of this thread
        name = urn.split("::")[2].rpartition("$")[2].rpartition(":")[2]
        with self._lock:
            if name not in self._providers:
                module, _, kind = PROVIDERS[name].partition(":")
                provider: ResourceProvider = getattr(import_module(module), kind)()
                config = Config(raw_config=self._config, project_name=PACKAGE)
                provider.configure(ConfigureRequest(config=config))
                self._providers[name] = provider
            return self._providers[name]


def _read(properties: Any) -> Properties:
    """With what is not known yet."""
    return dict(rpc.deserialize_properties(properties, True))  # noqa: FBT003


def _struct(properties: Mapping[str, Any]) -> Any:
    return asyncio.run(rpc.serialize_properties(dict(properties), {}))


def end_with_engine(address: str) -> None:
    """End this process when nobody answers at the engine's address any more.

    A provider is told by its engine when to end, and by nobody when the engine was killed: it would go on
    with what it was doing on machines while the next run begins. So a connection to the engine's address is
    held open, which falls in the moment in which the engine's process ends. This process's own connections to
    machines fall with it, and with them the locks that it holds there.
    """
    host, _, port = address.rpartition(":")
    if port.isdecimal():  # else somebody has started it by hand
        watch = threading.Thread(target=_watch, args=(host, int(port)), daemon=True)
        watch.start()


def _watch(host: str, port: int) -> None:
    while True:
        try:
            with socket.create_connection((host, port), CONNECT_SECONDS) as engine:
                engine.settimeout(None)
                while engine.recv(4096):
                    pass
        except ConnectionRefusedError:
            os._exit(1)
        except OSError:
            pass  # reset or timed out: the next attempt says whether anybody is there
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Serve until the engine has ended."""
    settings = Settings(project=PACKAGE, stack="stack", organization="organization")
    server = grpc.server(ThreadPoolExecutor(CALLS), options=_GRPC_CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(settings), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # By which Pulumi's engine ends its plugins; what a shell has started in the background ignores it.
    signal.signal(signal.SIGINT, lambda *_: sys.exit())
    print(port, flush=True)
    end_with_engine(sys.argv[-1])
    server.wait_for_termination()


if __name__ == "__main__":
    main()
