"""The gRPC service by which the program and providers send messages: `Engine`."""

from collections.abc import Callable

import grpc
from google.protobuf import empty_pb2

from engine.events import Severity
from engine.project import VersionError, satisfies
from engine.protocol import engine_pb2, engine_pb2_grpc
from engine.session import Session
from engine.state import VERSION

_SEVERITIES: dict[int, Severity] = {
    engine_pb2.LogSeverity.DEBUG: "debug",
    engine_pb2.LogSeverity.INFO: "info",
    engine_pb2.LogSeverity.WARNING: "warning",
    engine_pb2.LogSeverity.ERROR: "error",
}


class Engine(engine_pb2_grpc.EngineServicer):
    """Takes messages from the program and from providers."""

    def __init__(self, session: Session, is_over: Callable[[], bool]) -> None:
        self._session = session
        self._is_over = is_over
        self._root = ""

    def Log(self, request: engine_pb2.LogRequest, context: object) -> empty_pb2.Empty:  # noqa: ARG002, N802
        severity = _SEVERITIES[request.severity]
        # After a failure the program hears that the monitor is gone; that is no news to the user.
        # What is ephemeral is for a live view, which there is none of.
        shown = severity != "debug" or self._session.request.debug
        wanted = shown and not request.ephemeral
        if wanted and not self._is_over():
            self._session.reporter.say(severity, request.message, request.urn)
        return empty_pb2.Empty()

    def GetRootResource(  # noqa: N802
        self,
        request: object,  # noqa: ARG002
        context: object,  # noqa: ARG002
    ) -> engine_pb2.GetRootResourceResponse:
        return engine_pb2.GetRootResourceResponse(urn=self._root)

    def SetRootResource(  # noqa: N802
        self,
        request: engine_pb2.SetRootResourceRequest,
        context: object,  # noqa: ARG002
    ) -> engine_pb2.SetRootResourceResponse:
        self._root = request.urn
        return engine_pb2.SetRootResourceResponse()

    def RequirePulumiVersion(  # noqa: N802
        self, request: engine_pb2.RequirePulumiVersionRequest, context: grpc.ServicerContext
    ) -> engine_pb2.RequirePulumiVersionResponse:
        """Whether the release that this engine stands in for is in a range."""
        wanted = request.pulumi_version_range
        try:
            good = satisfies(VERSION, wanted)
        except VersionError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not good:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Pulumi CLI version {VERSION.removeprefix('v')} does not satisfy the version range"
                f' "{wanted}" requested by the program.',
            )
        return engine_pb2.RequirePulumiVersionResponse()
