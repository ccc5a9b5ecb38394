"""Transforms: functions of the program that may change a registration before it is carried out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import grpc

from lab.engine.protocol import CHANNEL_OPTIONS, callback_pb2, callback_pb2_grpc, resource_pb2


class TransformError(Exception):
    """A transform that failed; the message is for the user."""


class Transforms:
    """Calls the transforms that apply to a resource: its own, its parents', the stack's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack: list[callback_pb2.Callback] = []
        self._own: dict[str, list[callback_pb2.Callback]] = {}
        self._parents: dict[str, str] = {}
        self._stubs: dict[str, callback_pb2_grpc.CallbacksStub] = {}

    def register_for_stack(self, callback: callback_pb2.Callback) -> None:
        """Apply a transform to everything that is registered from now on."""
        with self._lock:
            self._stack.append(callback)

    def remember(self, request: resource_pb2.RegisterResourceRequest, urn: str) -> None:
        """Note a resource's transforms and parent, for its children."""
        with self._lock:
            self._parents[urn] = request.parent
            if request.transforms:
                self._own[urn] = list(request.transforms)

    def apply(
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceRequest:
        """The request as the transforms want it.

        Raises:
            TransformError: one of them failed.
        """
        callbacks = tuple(self._for(request))
        for callback in callbacks:
            answer = self._invoke(callback, request)
            request.object.CopyFrom(answer.properties)
            if answer.HasField("options"):
                _take_options(request, answer.options)
        if callbacks:
            for key in request.object.fields:
                request.propertyDependencies[key].SetInParent()  # those that were added have none
        return request

    def _for(
        self, request: resource_pb2.RegisterResourceRequest
    ) -> Iterator[callback_pb2.Callback]:
        yield from request.transforms
        with self._lock:
            stack = list(self._stack)
            inherited: list[callback_pb2.Callback] = []
            parent = request.parent
            while parent:
                inherited += self._own.get(parent, ())
                parent = self._parents.get(parent, "")
        yield from inherited
        yield from stack

    def _invoke(
        self, callback: callback_pb2.Callback, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.TransformResponse:
        message = resource_pb2.TransformRequest(
            type=request.type,
            name=request.name,
            custom=request.custom,
            parent=request.parent,
            properties=request.object,
            options=_options(request),
        )
        try:
            answer = self._stub(callback.target).Invoke(
                callback_pb2.CallbackInvokeRequest(
                    token=callback.token, request=message.SerializeToString()
                )
            )
        except grpc.RpcError as error:
            details = cast(grpc.Call, error).details()
            raise TransformError(f"transform of '{request.name}' failed: {details}") from None
        return resource_pb2.TransformResponse.FromString(answer.response)

    def _stub(self, target: str) -> callback_pb2_grpc.CallbacksStub:
        with self._lock:
            if target not in self._stubs:
                channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
                self._stubs[target] = callback_pb2_grpc.CallbacksStub(channel)
            return self._stubs[target]


_LISTS = {
    "depends_on": "dependencies",
    "ignore_changes": "ignoreChanges",
    "replace_on_changes": "replaceOnChanges",
    "aliases": "aliases",
    "additional_secret_outputs": "additionalSecretOutputs",
    "hide_diff": "hideDiffs",
    "replace_with": "replace_with",
}
"""Repeated fields of the options and of the request that they come from."""

_TEXTS = {
    "version": "version",
    "provider": "provider",
    "plugin_download_url": "pluginDownloadURL",
    "deleted_with": "deletedWith",
    "import": "importId",
}


def _options(
    request: resource_pb2.RegisterResourceRequest,
) -> resource_pb2.TransformResourceOptions:
    options = resource_pb2.TransformResourceOptions(
        providers=dict(request.providers),
        plugin_checksums=dict(request.pluginChecksums),
    )
    for name, source in _TEXTS.items():
        setattr(options, name, getattr(request, source))
    for name, source in _LISTS.items():
        getattr(options, name).extend(getattr(request, source))
    if request.HasField("protect"):
        options.protect = request.protect
    if request.HasField("retainOnDelete"):
        options.retain_on_delete = request.retainOnDelete
    if request.deleteBeforeReplaceDefined:
        options.delete_before_replace = request.deleteBeforeReplace
    if request.HasField("customTimeouts"):
        options.custom_timeouts.CopyFrom(request.customTimeouts)
    if request.HasField("hooks"):
        options.hooks.CopyFrom(request.hooks)
    if request.HasField("replacement_trigger"):
        options.replacement_trigger.CopyFrom(request.replacement_trigger)
    return options


def _take_options(
    request: resource_pb2.RegisterResourceRequest, options: resource_pb2.TransformResourceOptions
) -> None:
    for name, target in _TEXTS.items():
        setattr(request, target, getattr(options, name))
    for name, target in _LISTS.items():
        request.ClearField(target)  # type: ignore[arg-type]
        getattr(request, target).extend(getattr(options, name))
    for name, target in (("protect", "protect"), ("retain_on_delete", "retainOnDelete")):
        request.ClearField(target)  # type: ignore[arg-type]
        if options.HasField(name):  # type: ignore[arg-type]
            setattr(request, target, getattr(options, name))
    request.deleteBeforeReplaceDefined = options.HasField("delete_before_replace")
    request.deleteBeforeReplace = options.delete_before_replace
    for name, target in (
        ("custom_timeouts", "customTimeouts"),
        ("replacement_trigger", "replacement_trigger"),
        ("hooks", "hooks"),
    ):
        request.ClearField(target)  # type: ignore[arg-type]
        if options.HasField(name):  # type: ignore[arg-type]
            getattr(request, target).CopyFrom(getattr(options, name))
    request.providers.clear()
    request.providers.update(options.providers)
