"""A provider as a process: Pulumi's `ResourceProvider` service on a loopback port."""

# The service names its methods; what they do is said where their messages are declared.
# ruff: noqa: N802, D102

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, Final, NoReturn, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from lab.providers import calls
from lab.providers.engine_log import EngineLog
from lab.providers.redaction import redact
from lab.providers.values import contains_unknown, decode, encode, plain_properties

_THREADS: Final = 64
_GRACE_SECONDS: Final = 3.0
_PARENT_SECONDS: Final = 0.5
_MESSAGE_BYTES: Final = 400 * 1024 * 1024  # the engine's own limit
_Answer = TypeVar("_Answer")


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """Turns messages into calls of a `Provider`, and its errors into what the engine understands."""

    def __init__(self, provider: calls.Provider) -> None:
        self._provider = provider
        self._accept_secrets = True

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        del request, context
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_outputs=True)

    def Attach(
        self, request: plugin_pb2.PluginAttach, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        del context
        self._provider.engine.attach(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(
        self, request: empty_pb2.Empty, context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        del request, context
        return plugin_pb2.PluginInfo(version=self._provider.version)

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        del request, context
        self._provider.cancel()
        return empty_pb2.Empty()

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        def answer() -> provider_pb2.CheckResponse:
            checked = self._provider.check_config(decode(request.news))
            return self._checked(checked)

        return self._guarded(context, answer)

    def DiffConfig(
        self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        def answer() -> provider_pb2.DiffResponse:
            olds, news = decode(request.olds), decode(request.news)
            return _diffed(self._provider.diff_config(olds, news))

        return self._guarded(context, answer)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        def answer() -> provider_pb2.ConfigureResponse:
            self._accept_secrets = request.acceptSecrets
            self._provider.engine.info(
                f"this is the lab's stand-in for {self._provider.stands_in_for}, "
                "not the plugin itself (docs/stand-ins.md says what differs)",
                request.urn,
            )
            self._provider.configure(_options(self._provider.name, request))
            return provider_pb2.ConfigureResponse(
                acceptSecrets=True, acceptOutputs=True, supportsPreview=True
            )

        return self._guarded(context, answer)

    def Check(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        modes = provider_pb2.CheckRequest.AutonamingOptions
        call = calls.CheckCall(
            calls.Resource(request.urn),
            decode(request.olds),
            decode(request.news),
            request.randomSeed,
            request.autonaming.proposed_name,
            not request.HasField("autonaming") or request.autonaming.mode != modes.DISABLE,
        )
        return self._guarded(
            context, lambda: self._checked(self._provider.check(call)), call.olds, call.news
        )

    def Diff(
        self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        call = calls.DiffCall(
            calls.Resource(request.urn),
            request.id,
            decode(request.olds),
            decode(request.news),
            decode(request.old_inputs),
            tuple(request.ignoreChanges),
        )
        return self._guarded(
            context, lambda: _diffed(self._provider.diff(call)), call.olds, call.news
        )

    def Create(
        self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        call = calls.CreateCall(
            calls.Resource(request.urn),
            decode(request.properties),
            request.timeout,
            request.preview,
        )

        def answer() -> provider_pb2.CreateResponse:
            created = self._provider.create(call)
            return provider_pb2.CreateResponse(
                id=created.id, properties=self._encoded(created.outputs)
            )

        return self._guarded(context, answer, call.inputs)

    def Update(
        self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        call = calls.UpdateCall(
            calls.Resource(request.urn),
            request.id,
            decode(request.olds),
            decode(request.news),
            decode(request.old_inputs),
            request.timeout,
            tuple(request.ignoreChanges),
            request.preview,
        )

        def answer() -> provider_pb2.UpdateResponse:
            return provider_pb2.UpdateResponse(
                properties=self._encoded(self._provider.update(call))
            )

        return self._guarded(context, answer, call.olds, call.news)

    def Delete(
        self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        call = calls.DeleteCall(
            calls.Resource(request.urn),
            request.id,
            decode(request.properties),
            decode(request.old_inputs),
            request.timeout,
        )

        def answer() -> empty_pb2.Empty:
            self._provider.delete(call)
            return empty_pb2.Empty()

        return self._guarded(context, answer, call.outputs)

    def Read(
        self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        call = calls.ReadCall(
            calls.Resource(request.urn),
            request.id,
            decode(request.properties),
            decode(request.inputs),
        )

        def answer() -> provider_pb2.ReadResponse:
            found = self._provider.read(call)
            if found is None:
                return provider_pb2.ReadResponse(id="")
            return provider_pb2.ReadResponse(
                id=found.id,
                properties=self._encoded(found.outputs),
                inputs=self._encoded(found.inputs),
            )

        return self._guarded(context, answer, call.outputs, call.inputs)

    def Invoke(
        self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.InvokeResponse:
        def answer() -> provider_pb2.InvokeResponse:
            result = self._provider.invoke(request.tok, decode(request.args))
            return provider_pb2.InvokeResponse(**{"return": self._encoded(result)})

        return self._guarded(context, answer)

    def Construct(
        self, request: provider_pb2.ConstructRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConstructResponse:
        self._refuse(context, f"component {request.type}")

    def Call(
        self, request: provider_pb2.CallRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CallResponse:
        self._refuse(context, f"method {request.tok}")

    def _refuse(self, context: grpc.ServicerContext, what: str) -> NoReturn:
        context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            f"{what} is not part of the {self._provider.name} stand-in; "
            f"install the Pulumi CLI to run this program with {self._provider.stands_in_for}",
        )
        raise AssertionError("abort does not return")

    def _encoded(self, properties: Mapping[str, Any]) -> Any:
        return encode(properties, keep_secrets=self._accept_secrets)

    def _checked(self, checked: calls.Checked) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(
            inputs=self._encoded(checked.inputs),
            failures=[
                provider_pb2.CheckFailure(property=failure.property, reason=failure.reason)
                for failure in checked.failures
            ],
        )

    def _guarded(
        self,
        context: grpc.ServicerContext,
        answer: Callable[[], _Answer],
        *properties: Mapping[str, Any],
    ) -> _Answer:
        """The answer, or the error as gRPC has it; what is secret in `properties` is not in its text."""
        hidden = [self._provider.secrets_of(dict(group)) for group in properties]
        try:
            return answer()
        except calls.PartialError as error:
            message = redact(str(error), *hidden)
            reasons = [redact(reason, *hidden) for reason in error.reasons]
            details = self._details(error, message, reasons)
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(grpc.StatusCode.UNKNOWN, message)
        except calls.ProviderError as error:
            context.abort(grpc.StatusCode.UNKNOWN, redact(str(error), *hidden))
        except Exception as error:  # noqa: BLE001 - the last boundary before the user's screen
            self._provider.engine.debug(redact(traceback.format_exc(), *hidden))
            what = redact(f"{type(error).__name__}: {error}", *hidden)
            context.abort(
                grpc.StatusCode.INTERNAL,
                f"defect in the {self._provider.name} stand-in: {what} (the debug log has the place)",
            )
        raise AssertionError("abort does not return")

    def _details(self, error: calls.PartialError, message: str, reasons: list[str]) -> bytes:
        detail = any_pb2.Any()
        detail.Pack(
            provider_pb2.ErrorResourceInitFailed(
                id=error.id,
                properties=self._encoded(error.properties),
                reasons=reasons,
            )
        )
        status = status_pb2.Status(
            code=grpc.StatusCode.UNKNOWN.value[0], message=message, details=[detail]
        )
        return status.SerializeToString()


def _options(package: str, request: provider_pb2.ConfigureRequest) -> dict[str, Any]:
    """Provider options: `args` where the engine sends them, else the older `PACKAGE:config:KEY` variables."""
    options = plain_properties(decode(request.args))
    if not options:
        prefix = f"{package}:config:"
        options = {key.removeprefix(prefix): value for key, value in request.variables.items()}
    options.pop("version", None)
    options.pop("pluginDownloadURL", None)
    if contains_unknown(options):
        names = ", ".join(key for key, value in options.items() if contains_unknown(value))
        raise calls.ProviderError(f"provider options are not known yet: {names}")
    return options


def _diffed(diff: calls.Diff) -> provider_pb2.DiffResponse:
    changed = bool(diff.changes)
    answer = provider_pb2.DiffResponse
    return answer(
        changes=answer.DIFF_SOME if changed else answer.DIFF_NONE,
        replaces=diff.replaces,
        diffs=sorted({path.split(".", 1)[0].split("[", 1)[0] for path in diff.changes}),
        deleteBeforeReplace=diff.delete_before_replace,
        detailedDiff={
            path: provider_pb2.PropertyDiff(
                kind=provider_pb2.PropertyDiff.Kind.Value(kind.value), inputDiff=diff.input_diff
            )
            for path, kind in diff.changes.items()
        },
        hasDetailedDiff=True,
    )


def start(provider: calls.Provider) -> tuple[grpc.Server, int]:
    """Serve `provider` on a free loopback port; the server and its port."""
    limits = [
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=_THREADS), options=limits)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(provider), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def main(make: Callable[[EngineLog], calls.Provider], arguments: list[str]) -> int:
    """Run one provider until the engine stops it or is gone.

    The port is the first line on stdout, as the plugin protocol has it; the engine's address is the
    only argument.
    """
    if len(arguments) > 1:
        print(f"usage: one argument, the engine's address (got {arguments})", file=sys.stderr)
        return 2
    provider = make(EngineLog(arguments[0] if arguments else ""))
    server, port = start(provider)
    stopped = threading.Event()
    # Ctrl-C reaches the whole process group; what it means for running steps is the engine's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    print(port, flush=True)
    _wait_for_parent(stopped)
    provider.cancel()
    server.stop(_GRACE_SECONDS).wait(_GRACE_SECONDS)
    provider.close()
    # Worker threads may still sit in a system call; nothing they could do has anyone to answer to.
    sys.stdout.flush()
    os._exit(0)


def _wait_for_parent(stopped: threading.Event) -> None:
    """Return when told to stop, or when the starting process is gone.

    A killed engine must not leave providers behind.
    """
    parent = os.getppid()
    while os.getppid() == parent and not stopped.wait(_PARENT_SECONDS):
        pass
