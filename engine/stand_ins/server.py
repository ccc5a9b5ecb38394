"""Pulumi's `ResourceProvider` service in front of a provider."""

# The service names its methods; what they do is said where their messages are declared.
# ruff: noqa: N802

import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2, struct_pb2

from engine.answers import Checked, ProviderError
from engine.protocol import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2
from engine.stand_ins import calls
from engine.stand_ins.redaction import redact
from engine.stand_ins.values import Properties, decode, plain_properties
from engine.values import contains_unknown
from engine.wire import marshal

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

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        def answer() -> provider_pb2.CheckResponse:
            return self._checked(self._provider.check_config(decode(request.news)))

        return self._guarded(context, answer)

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        def answer() -> provider_pb2.DiffResponse:
            return _diffed(self._provider.diff_config(decode(request.olds), decode(request.news)))

        return self._guarded(context, answer)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        def answer() -> provider_pb2.ConfigureResponse:
            self._accept_secrets = request.acceptSecrets
            self._provider.engine.info(
                f"this is the lab's stand-in for {self._provider.stands_in_for}, "
                "not the plugin itself (docs/engine.md says what differs)",
                request.urn,
            )
            self._provider.configure(_options(self._provider.name, request))
            return provider_pb2.ConfigureResponse(
                acceptSecrets=True, acceptOutputs=True, supportsPreview=True
            )

        return self._guarded(context, answer)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        modes = provider_pb2.CheckRequest.AutonamingOptions
        call = _call(
            request,
            news=request.news,
            old_inputs=request.olds,
            seed=request.randomSeed,
            proposed_name=request.autonaming.proposed_name,
            autonaming=not request.HasField("autonaming")
            or request.autonaming.mode != modes.DISABLE,
        )
        return self._guarded(context, lambda: self._checked(self._provider.check(call)), call)

    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        call = _call(request, news=request.news, olds=request.olds, old_inputs=request.old_inputs)
        return self._guarded(context, lambda: _diffed(self._provider.diff(call)), call)

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        call = _call(request, news=request.properties)

        def answer() -> provider_pb2.CreateResponse:
            made = self._provider.create(call)
            return provider_pb2.CreateResponse(id=made.id, properties=self._sent(made.outputs))

        return self._guarded(context, answer, call)

    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        call = _call(request, news=request.news, olds=request.olds, old_inputs=request.old_inputs)

        def answer() -> provider_pb2.UpdateResponse:
            outputs = self._sent(self._provider.update(call))
            return provider_pb2.UpdateResponse(properties=outputs)

        return self._guarded(context, answer, call)

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        call = _call(request, olds=request.properties, old_inputs=request.old_inputs)

        def answer() -> empty_pb2.Empty:
            self._provider.delete(call)
            return empty_pb2.Empty()

        return self._guarded(context, answer, call)

    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        call = _call(request, olds=request.properties, old_inputs=request.inputs)

        def answer() -> provider_pb2.ReadResponse:
            found = self._provider.read(call) or calls.Found("", {})
            outputs, inputs = self._sent(found.outputs), self._sent(found.inputs)
            return provider_pb2.ReadResponse(id=found.id, properties=outputs, inputs=inputs)

        return self._guarded(context, answer, call)

    def Invoke(self, request: Any, context: grpc.ServicerContext) -> NoReturn:
        self._refuse(context, f"function {request.tok}")

    def Construct(self, request: Any, context: grpc.ServicerContext) -> NoReturn:
        self._refuse(context, f"component {request.type}")

    def Call(self, request: Any, context: grpc.ServicerContext) -> NoReturn:
        self._refuse(context, f"method {request.tok}")

    def _refuse(self, context: grpc.ServicerContext, what: str) -> NoReturn:
        context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            f"{what} is not part of the {self._provider.name} stand-in; "
            f"install the Pulumi CLI to run this program with {self._provider.stands_in_for}",
        )
        raise AssertionError("abort does not return")

    def _sent(self, properties: Mapping[str, Any]) -> struct_pb2.Struct:
        return marshal(properties, secrets=self._accept_secrets)

    def _checked(self, checked: Checked) -> provider_pb2.CheckResponse:
        failures = [
            provider_pb2.CheckFailure(property=one.property, reason=one.reason)
            for one in checked.failures
        ]
        return provider_pb2.CheckResponse(inputs=self._sent(checked.inputs), failures=failures)

    def _guarded(
        self,
        context: grpc.ServicerContext,
        answer: Callable[[], _Answer],
        call: calls.Call | None = None,
    ) -> _Answer:
        """The answer, or the error as gRPC has it; what is secret in `call` is not in its text."""
        known = (call.news, call.olds, call.old_inputs) if call else ()
        hidden = [self._provider.secrets_of(properties) for properties in known]
        try:
            return answer()
        except calls.PartialError as error:
            message = redact(str(error), *hidden)
            detail = any_pb2.Any()
            detail.Pack(
                provider_pb2.ErrorResourceInitFailed(
                    id=error.id,
                    properties=self._sent(error.properties),
                    reasons=[redact(reason, *hidden) for reason in error.reasons],
                )
            )
            code = grpc.StatusCode.UNKNOWN.value[0]
            status = status_pb2.Status(code=code, message=message, details=[detail])
            trailer = ("grpc-status-details-bin", status.SerializeToString())
            context.set_trailing_metadata((trailer,))
            context.abort(grpc.StatusCode.UNKNOWN, message)
        except ProviderError as error:
            context.abort(grpc.StatusCode.UNKNOWN, redact(str(error), *hidden))
        except Exception as error:  # noqa: BLE001 - the last boundary before the user's screen
            self._provider.engine.debug(redact(traceback.format_exc(), *hidden))
            what = redact(f"{type(error).__name__}: {error}", *hidden)
            context.abort(
                grpc.StatusCode.INTERNAL,
                f"defect in the {self._provider.name} stand-in: {what} (the debug log has the place)",
            )
        raise AssertionError("abort does not return")


def _call(
    request: Any,
    *,
    news: struct_pb2.Struct | None = None,
    olds: struct_pb2.Struct | None = None,
    old_inputs: struct_pb2.Struct | None = None,
    **more: Any,
) -> calls.Call:
    """The question of a message; fields that it does not have are left as they are."""
    return calls.Call(
        calls.Resource(request.urn),
        id=getattr(request, "id", ""),
        news=decode(news),
        olds=decode(olds),
        old_inputs=decode(old_inputs),
        ignore_changes=tuple(getattr(request, "ignoreChanges", ())),
        timeout_seconds=getattr(request, "timeout", 0.0),
        preview=getattr(request, "preview", False),
        **more,
    )


def _options(package: str, request: provider_pb2.ConfigureRequest) -> Properties:
    """Provider options: `args` where the engine sends them, else the older `PACKAGE:config:KEY` variables."""
    options = plain_properties(decode(request.args))
    if not options:
        prefix = f"{package}:config:"
        options = {key.removeprefix(prefix): value for key, value in request.variables.items()}
    options.pop("version", None)
    options.pop("pluginDownloadURL", None)
    if contains_unknown(options):
        names = ", ".join(key for key, value in options.items() if contains_unknown(value))
        raise ProviderError(f"provider options are not known yet: {names}")
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
            path: provider_pb2.PropertyDiff(kind=provider_pb2.PropertyDiff.Kind.Value(kind.value))
            for path, kind in diff.changes.items()
        },
        hasDetailedDiff=True,
    )
