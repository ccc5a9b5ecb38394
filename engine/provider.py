"""Providers as steps and plans see them, and the one that is a process over gRPC."""

import threading
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf import empty_pb2

from engine.answers import (
    Checked,
    Comparison,
    Failure,
    InitFailedError,
    Live,
    NotImplementedByProviderError,
    ProviderError,
    diff_of,
    error_of,
    failures_of,
    mark_secrets,
)
from engine.diff import Changes, Diff, resolve_unknown
from engine.plugins import PluginError, PluginProcess
from engine.protocol import CHANNEL_OPTIONS, provider_pb2, provider_pb2_grpc
from engine.state import ResourceState
from engine.values import Values, contains_unknown
from engine.wire import marshal, unmarshal

_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""What a call ends with when its connection breaks."""
_SILENT = (*_GONE, grpc.StatusCode.DEADLINE_EXCEEDED)
_ANSWER_SECONDS = 5


class Unconfigured:
    """Stands for a provider whose configuration a preview cannot know: everything is unknown."""

    supports_preview = True

    def check(self, subject: ResourceState, olds: Values, news: Values, *, seed: bytes) -> Checked:  # noqa: ARG002
        return Checked(news)

    def diff(self, *_: object, **__: object) -> Diff:
        return Diff(Changes.UNKNOWN)

    def create(self, *_: object, **__: object) -> tuple[str, Values]:
        """Nothing is known of what will be there."""
        return "", {}

    def update(self, *_: object, **__: object) -> Values:
        """Nothing is known of what will be there."""
        return {}

    def read(self, subject: ResourceState, id_: str, inputs: Values, outputs: Values) -> Live:  # noqa: ARG002
        return Live(id_, {}, None)

    def delete(self, *_: object, **__: object) -> None:
        """A preview deletes nothing."""

    def invoke(self, *_: object, **__: object) -> tuple[Values, tuple[Failure, ...]]:
        return {}, ()


class Provider:
    """One provider process, and what it said of itself when it was configured."""

    def __init__(self, process: PluginProcess) -> None:
        self.process = process
        self._stub: Any = None
        self._connecting = threading.Lock()
        self._gone = False
        self.accept_secrets = False
        self.accept_resources = False
        self.supports_preview = False

    # -- configuration -------------------------------------------------------------------

    def handshake(self, engine_address: str, root: str, program: str) -> None:
        """Introduce the engine; providers that do not know this call are configured all the same.

        Raises:
            ProviderError: it does not answer.
        """
        request = provider_pb2.ProviderHandshakeRequest(
            engine_address=engine_address,
            root_directory=root,
            program_directory=program,
            configure_with_urn=True,
            invoke_with_preview=True,
        )
        try:
            answer = self._call("Handshake", request)
            self.accept_secrets = answer.accept_secrets
            self.accept_resources = answer.accept_resources
        except NotImplementedByProviderError:
            pass
        self._call("GetPluginInfo", empty_pb2.Empty())

    def check_config(self, subject: ResourceState, olds: Values, news: Values) -> Checked:
        """Check the provider's own configuration. Secrets are sent in the clear."""
        request = provider_pb2.CheckRequest(
            **_about(subject),
            olds=marshal(olds, secrets=False),
            news=marshal(news, secrets=False),
        )
        try:
            answer = self._call("CheckConfig", request)
        except NotImplementedByProviderError:
            return Checked(news)
        inputs = mark_secrets(self._unmarshal(answer.inputs), news)
        return Checked(inputs, failures_of(answer))

    def diff_config(
        self,
        subject: ResourceState,
        id_: str,
        old_inputs: Values,
        old_outputs: Values,
        news: Values,
    ) -> Diff:
        """Compare two configurations of the provider. Secrets are sent in the clear."""
        request = provider_pb2.DiffRequest(
            **_about(subject, id_),
            olds=marshal(old_outputs, secrets=False),
            old_inputs=marshal(old_inputs, secrets=False),
            news=marshal(news, secrets=False),
        )
        try:
            return diff_of(self._call("DiffConfig", request))
        except NotImplementedByProviderError:
            return Diff(Changes.NONE)

    def configure(
        self, subject: ResourceState, id_: str, inputs: Values, variables: Mapping[str, str]
    ) -> None:
        """Hand the provider its configuration.

        Raises:
            ProviderError: it refuses it.
        """
        request = provider_pb2.ConfigureRequest(
            args=marshal(inputs),
            variables=dict(variables),
            acceptSecrets=True,
            acceptResources=True,
            sends_old_inputs=True,
            sends_old_inputs_to_delete=True,
            **_about(subject, id_),
        )
        answer = self._call("Configure", request)
        self.accept_secrets = answer.acceptSecrets
        self.accept_resources = answer.acceptResources
        self.supports_preview = answer.supportsPreview

    # -- resources -----------------------------------------------------------------------

    def check(self, subject: ResourceState, olds: Values, news: Values, *, seed: bytes) -> Checked:
        """Fill in defaults and refuse what cannot be."""
        request = provider_pb2.CheckRequest(
            **_about(subject),
            olds=self._marshal(olds),
            news=self._marshal(news),
            randomSeed=seed,
        )
        answer = self._call("Check", request)
        return Checked(self._marked(self._unmarshal(answer.inputs), news), failures_of(answer))

    def diff(self, wanted: Comparison) -> Diff:
        request = provider_pb2.DiffRequest(**self._compared(wanted))
        return diff_of(self._call("Diff", request))

    def create(
        self, subject: ResourceState, inputs: Values, *, timeout: float, preview: bool
    ) -> tuple[str, Values]:
        """Make the object; in a preview, say what it would look like.

        Raises:
            InitFailedError: it was made, but did not come up.
            ProviderError: it was not made.
        """
        request = provider_pb2.CreateRequest(
            **_about(subject),
            properties=self._marshal(inputs),
            timeout=timeout,
            preview=preview,
        )
        try:
            answer = self._call("Create", request)
        except InitFailedError as error:
            error.outputs = self._marked(error.outputs, inputs)
            raise
        if not preview and not answer.id:
            raise ProviderError(f"the provider gave no ID for the new resource '{subject.urn}'")
        made = self._known(answer.properties, preview=preview)
        return answer.id, self._marked(made, inputs)

    def read(self, subject: ResourceState, id_: str, inputs: Values, outputs: Values) -> Live:
        """What the object looks like now.

        Raises:
            InitFailedError: it is there, but not healthy.
            ProviderError: it could not be read.
        """
        request = provider_pb2.ReadRequest(
            **_about(subject, id_),
            inputs=self._marshal(inputs),
            properties=self._marshal(outputs),
        )
        try:
            answer = self._call("Read", request)
        except InitFailedError as error:
            error.outputs = self._marked(error.outputs, outputs)
            if error.inputs is not None:
                error.inputs = self._marked(error.inputs, inputs)
            raise
        if not answer.id:
            return Live("", None, None)
        found = self._unmarshal(answer.inputs) if answer.HasField("inputs") else None
        return Live(
            answer.id,
            self._marked(self._known(answer.properties), outputs),
            None if found is None else self._marked(found, inputs),
        )

    def update(self, wanted: Comparison, *, timeout: float, preview: bool) -> Values:
        """Change the object in place; in a preview, say what it would look like.

        Raises:
            InitFailedError: it was changed, but did not come up.
            ProviderError: it was not changed.
        """
        request = provider_pb2.UpdateRequest(
            **self._compared(wanted), timeout=timeout, preview=preview
        )
        try:
            answer = self._call("Update", request)
        except InitFailedError as error:
            error.outputs = self._marked(error.outputs, wanted.news)
            raise
        return self._marked(self._known(answer.properties, preview=preview), wanted.news)

    def delete(
        self, subject: ResourceState, id_: str, *, inputs: Values, outputs: Values, timeout: float
    ) -> None:
        """Remove the object.

        Raises:
            ProviderError: it is still there, as far as the provider knows.
        """
        request = provider_pb2.DeleteRequest(
            **_about(subject, id_),
            properties=self._marshal(outputs),
            old_inputs=self._marshal(inputs),
            timeout=timeout,
        )
        self._call("Delete", request)

    def invoke(
        self, token: str, args: Values, *, preview: bool
    ) -> tuple[Values, tuple[Failure, ...]]:
        request = provider_pb2.InvokeRequest(tok=token, args=self._marshal(args), preview=preview)
        answer = self._call("Invoke", request)
        return self._unmarshal(getattr(answer, "return")), failures_of(answer)

    # -- the end -------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask the provider to end running calls soon; one that cannot is left alone."""
        try:
            self._connect().Cancel(empty_pb2.Empty(), timeout=1)
        except (grpc.RpcError, ProviderError, PluginError, ValueError):
            # It never served, has ended, or its channel is closed: nothing runs that could be ended.
            return

    def mark_gone(self) -> None:
        """Say that the process is about to be ended: calls that fail now are no news."""
        self._gone = True

    def close(self) -> None:
        """End the process; running calls fail."""
        self.mark_gone()
        self.process.kill()

    # -- below ---------------------------------------------------------------------------

    def _call(self, method: str, request: Any) -> Any:
        """The answer to a request; raises what the provider says in place of one."""
        try:
            return getattr(self._connect(), method)(request)
        except grpc.RpcError as error:
            raise self._translate(method, cast(grpc.Call, error)) from None
        except ValueError:
            # grpc says so of a channel that `close` has closed.
            raise ProviderError(f"the provider for '{self.process.name}' was stopped") from None

    def _connect(self) -> Any:
        with self._connecting:
            if self._stub is None:
                address = self.process.address()
                channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
                self._stub = provider_pb2_grpc.ResourceProviderStub(channel)
            return self._stub

    def _serves(self) -> bool:
        """Whether the provider answers, be it with an error."""
        try:
            self._stub.GetPluginInfo(empty_pb2.Empty(), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            return cast(grpc.Call, error).code() not in _SILENT
        except ValueError:
            return False  # the channel is closed
        return True

    def _translate(self, method: str, error: grpc.Call) -> ProviderError:
        code, details = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return NotImplementedByProviderError(
                f"the provider for '{self.process.name}' does not implement {method}: {details}"
            )
        if code in _GONE:
            ended = None if self._gone else self.process.ended(self._serves)
            if self._gone:
                return ProviderError(f"the provider for '{self.process.name}' was stopped")
            if ended is not None:
                return ProviderError(
                    f"the provider for '{self.process.name}' ended with exit code {ended} during"
                    f" {method}{self.process.last_words()}"
                )
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin" and isinstance(value, bytes):
                return error_of(details, value)
        return ProviderError(details or f"{method} failed with {code.name}")

    def _marshal(self, values: Values) -> Any:
        return marshal(values, secrets=self.accept_secrets, references=self.accept_resources)

    def _compared(self, wanted: Comparison) -> dict[str, Any]:
        return {
            **_about(wanted.subject, wanted.id),
            "olds": self._marshal(wanted.old_outputs),
            "old_inputs": self._marshal(wanted.old_inputs),
            "news": self._marshal(wanted.news),
            "ignoreChanges": wanted.ignored,
        }

    def _known(self, struct: Any, *, preview: bool = False) -> Values:
        """The values of an object that exists, or that a preview has made up."""
        values = self._unmarshal(struct)
        unknown = [] if preview else [k for k, v in values.items() if contains_unknown(v)]
        if unknown:
            raise ProviderError(
                f"the provider for '{self.process.name}' answered with unknown values although"
                f" there is an object: {', '.join(unknown)}"
            )
        return values

    def _unmarshal(self, struct: Any) -> Values:
        try:
            return unmarshal(struct)
        except (ValueError, KeyError) as error:
            raise ProviderError(
                f"the provider for '{self.process.name}' answered what cannot be understood: {error}"
            ) from None

    def _marked(self, values: Values, sent: Values) -> Values:
        return values if self.accept_secrets else mark_secrets(values, sent)


def _about(subject: ResourceState, id_: str | None = None) -> dict[str, Any]:
    """The fields by which a request says which resource it is about."""
    fields = {"urn": subject.urn, "name": subject.name, "type": subject.type}
    return fields if id_ is None else {**fields, "id": id_}


ResourceProvider: TypeAlias = Provider | Unconfigured
"""What steps and plans need."""


def compare(provider: ResourceProvider, wanted: Comparison) -> Diff:
    """The difference as the provider sees it; where it leaves that to the engine, of the inputs.

    Raises:
        ProviderError: the provider does not answer.
        IgnoreChangesError: an ignored property cannot be put back.
    """
    diff = provider.diff(wanted)
    return resolve_unknown(diff, wanted.old_inputs, wanted.news, wanted.ignored)
