"""Pulumi's `ResourceProvider` service in front of a provider."""

# The service names its methods; what they do is said where their messages are declared.
# ruff: noqa: N802

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf import empty_pb2

from engine.protocol import plugin_pb2, provider_pb2, provider_pb2_grpc
from engine.stand_ins import calls, messages
from engine.stand_ins.redaction import redact
from engine.stand_ins.values import decode, encode

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
            return messages.diffed(self._provider.diff_config(olds, news))

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
            self._provider.configure(messages.options(self._provider.name, request))
            return provider_pb2.ConfigureResponse(
                acceptSecrets=True, acceptOutputs=True, supportsPreview=True
            )

        return self._guarded(context, answer)

    def Check(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        call = messages.check_call(request)
        return self._guarded(
            context, lambda: self._checked(self._provider.check(call)), call.olds, call.news
        )

    def Diff(
        self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        call = messages.diff_call(request)
        return self._guarded(
            context, lambda: messages.diffed(self._provider.diff(call)), call.olds, call.news
        )

    def Create(
        self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        call = messages.create_call(request)

        def answer() -> provider_pb2.CreateResponse:
            created = self._provider.create(call)
            return provider_pb2.CreateResponse(
                id=created.id, properties=self._encoded(created.outputs)
            )

        return self._guarded(context, answer, call.inputs)

    def Update(
        self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        call = messages.update_call(request)

        def answer() -> provider_pb2.UpdateResponse:
            return provider_pb2.UpdateResponse(
                properties=self._encoded(self._provider.update(call))
            )

        return self._guarded(context, answer, call.olds, call.news)

    def Delete(
        self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        call = messages.delete_call(request)

        def answer() -> empty_pb2.Empty:
            self._provider.delete(call)
            return empty_pb2.Empty()

        return self._guarded(context, answer, call.outputs)

    def Read(
        self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        call = messages.read_call(request)

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
        return messages.checked(self._encoded(checked.inputs), checked.failures)

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
            state = self._encoded(error.properties)
            details = messages.partial_state(error, state, message, reasons)
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
