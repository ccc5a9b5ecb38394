"""The gRPC service by which the program registers resources: `ResourceMonitor`."""

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2

from engine import goal as goals
from engine.answers import ProviderError
from engine.drafts import PlanError
from engine.executor import CancelledError, Executor
from engine.goal import GoalError
from engine.plugins import PluginError
from engine.protocol import provider_pb2, resource_pb2, resource_pb2_grpc
from engine.registrar import Registrar
from engine.session import Session
from engine.values import UNKNOWN_STRING, any_unknown
from engine.wire import marshal

_FEATURES = (
    "SECRETS",
    "RESOURCE_REFERENCES",
    "OUTPUT_VALUES",
    "ALIAS_SPECS",
    "REPLACEMENT_TRIGGER",
    "DELETED_WITH",
    "TRANSFORMS",
)
"""What is left out here the SDK refuses by name; transforms are refused below, in clearer words."""

STACK_REFERENCE = "pulumi:pulumi:StackReference"

_RESULTS = {
    "success": resource_pb2.Result.SUCCESS,
    "fail": resource_pb2.Result.FAIL,
    "skip": resource_pb2.Result.FAIL,
}


class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """Takes the program's registrations. A call is answered when its steps are done."""

    def __init__(self, session: Session, registrar: Registrar, executor: Executor) -> None:
        self._session = session
        self._registrar = registrar
        self._executor = executor
        self.finished = threading.Event()
        self._on_finish: Callable[[], None] = self.finished.set

    def when_finished(self, call: Callable[[], None]) -> None:
        """Call this when the program has registered all it has."""
        self._on_finish = call

    def GetDeploymentInfo(self, request: object, context: object) -> resource_pb2.DeploymentInfo:  # noqa: ARG002, N802
        asked = self._session.request
        return resource_pb2.DeploymentInfo(
            project=asked.project.name,
            stack=asked.stack,
            organization=asked.organization,
            config={key: value.value for key, value in asked.config.items()},
            configSecretKeys=[key for key, value in asked.config.items() if value.secret],
            dryRun=asked.preview,
            parallel=asked.parallel,
            supportedFeatures=[
                resource_pb2.ResourceMonitorFeature.Value(f"RESOURCE_MONITOR_FEATURE_{name}")
                for name in _FEATURES
            ],
        )

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest, context: grpc.ServicerContext
    ) -> resource_pb2.RegisterResourceResponse:
        """Make a resource what the program wants it to be."""
        try:
            goal = goals.from_request(request, self._session.request.project.folder)
            registered = self._registrar.register(goal)
        except CancelledError:
            _abort(context)
        except (GoalError, ValueError) as error:
            self._fail(context, str(error))
        except Exception as error:  # noqa: BLE001 (told to the user when all has been ended)
            self._break_off(context, error)
        state = registered.state
        return resource_pb2.RegisterResourceResponse(
            urn=state.urn,
            id="" if state.id == UNKNOWN_STRING else state.id,
            object=marshal(
                state.outputs, secrets=request.acceptSecrets, references=request.acceptResources
            ),
            result=_RESULTS[registered.result],
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Set the outputs of a component or the stack."""
        if self._executor.cancelled.is_set():
            _abort(context)
        try:
            outputs = goals.read_values(request.outputs, f"the outputs of {request.urn}")
            self._registrar.outputs(request.urn, outputs)
        except (GoalError, ValueError) as error:
            self._fail(context, str(error))
        except Exception as error:  # noqa: BLE001 (told to the user when all has been ended)
            self._break_off(context, error)
        return empty_pb2.Empty()

    def Invoke(  # noqa: N802
        self, request: resource_pb2.ResourceInvokeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.InvokeResponse:
        if request.packageRef:
            _refuse(context, f"functions of parameterized packages: {request.tok}")
        try:
            goals.refuse_unknown(request, f"the call of {request.tok}")
            args = goals.read_values(request.args, f"the call of {request.tok}")
            reference = request.provider or self._registrar.default_provider(
                request.tok.split(":", 1)[0],
                request.version,
                request.pluginDownloadURL,
                request.tok,
            )
            self._session.ensure_provider(reference)
            provider = self._session.registry.get(reference)
            result, failures = provider.invoke(request.tok, args, preview=self._session.preview)
        except CancelledError:
            _abort(context)
        except (ProviderError, PluginError, PlanError, ValueError) as error:
            text = f"invocation of {request.tok} returned an error: {error}"
            context.abort(grpc.StatusCode.UNKNOWN, text)
        answer = provider_pb2.InvokeResponse(
            failures=[
                provider_pb2.CheckFailure(property=f.property, reason=f.reason) for f in failures
            ]
        )
        if not any_unknown(args.values()) or result:
            getattr(answer, "return").CopyFrom(marshal(result, references=request.acceptResources))
        return answer

    def SignalAndWaitForShutdown(self, request: object, context: object) -> empty_pb2.Empty:  # noqa: ARG002, N802
        self.finished.set()
        self._on_finish()
        return empty_pb2.Empty()

    def _break_off(self, context: grpc.ServicerContext, error: Exception) -> NoReturn:
        self._executor.break_off(error)
        _abort(context)

    def _fail(self, context: grpc.ServicerContext, message: str) -> NoReturn:
        self._session.reporter.say("error", message)
        self._registrar.refused = True
        self._executor.cancel()
        _abort(context)


def _abort(context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.UNAVAILABLE, "the deployment is over")
    raise AssertionError("abort always raises")


def _refuse(context: grpc.ServicerContext, what: str) -> NoReturn:
    context.abort(
        grpc.StatusCode.UNIMPLEMENTED,
        f"the embedded engine does not support {what}; run this stack with the Pulumi CLI",
    )
    raise AssertionError("abort always raises")


def _refused(what: str) -> Callable[[Monitor, Any, grpc.ServicerContext], NoReturn]:
    """A call that is refused; `what` may name fields of its request."""

    def refuse(_: Monitor, request: Any, context: grpc.ServicerContext) -> NoReturn:
        _refuse(context, what.format(request))

    return refuse


def _read_only(_: Monitor, request: Any, context: grpc.ServicerContext) -> NoReturn:
    of = "StackReference" if request.type == STACK_REFERENCE else "resources that are only read"
    _refuse(context, f"{of}: '{request.name}' of type {request.type}")


_REFUSED = {
    "Call": _refused("the method call {0.tok}"),
    "RegisterPackage": _refused("the parameterized package {0.name}"),
    "RegisterResourceHook": _refused("the resource hook {0.name}"),
    "RegisterErrorHook": _refused("the error hook {0.name}"),
    "RegisterStackTransform": _refused("transforms"),
    "RegisterStackInvokeTransform": _refused("invoke transforms"),
    "ExistsResource": _refused("asking whether {0.type} '{0.id}' exists"),
    "ReadResource": _read_only,
}
for _name, _answer in _REFUSED.items():
    setattr(Monitor, _name, _answer)
