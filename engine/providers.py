"""Provider resources: from their state to a process that is configured and serves."""

import concurrent.futures
import dataclasses
import json
import re
import threading
import uuid
from collections.abc import Iterable

from engine import urn as urns
from engine.answers import Checked, ProviderError
from engine.diff import Changes, Diff
from engine.plugins import PluginError, PluginProcess, Plugins, end_all, program_folder
from engine.provider import Provider, ResourceProvider, Unconfigured
from engine.request import ConfigValue, Request
from engine.state import INTERNAL, PROVIDER_TYPE_PREFIX, ResourceState
from engine.values import UNKNOWN_STRING, Secret, Value, Values, any_unknown, reveal


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """A provider resource that is in use; `ready` gives the provider when it is configured."""

    state: ResourceState
    ready: concurrent.futures.Future[ResourceProvider]


class Registry:
    """All providers of one deployment, by their reference `URN::ID`."""

    def __init__(self, request: Request, plugins: Plugins, engine_address: str) -> None:
        self._request = request
        self._plugins = plugins
        self._engine = engine_address
        self._lock = threading.Lock()
        self._handles: dict[str, Handle] = {}
        self._candidates: dict[str, Provider] = {}
        self._spare: dict[tuple[str, str], PluginProcess] = {}
        self._all: list[Provider] = []
        self._closed = False

    def warm_up(self, states: Iterable[ResourceState]) -> None:
        """Start the processes of the providers in the old state, as they are likely to be needed.

        One that cannot be started is left to the moment when it is needed.
        """
        wanted = {_plugin_of(s) for s in states if s.is_provider and not s.delete}
        for package, version in sorted(wanted):
            try:
                process = self._plugins.start(package, version)
            except PluginError:
                continue
            with self._lock:
                self._spare[package, version] = process

    # -- the provider resource's own check, diff and steps -------------------------------

    def check(self, subject: ResourceState, olds: Values, news: Values) -> Checked:
        """Start a process for the provider resource and let it check its configuration.

        Raises:
            PluginError: there is no such provider, or it does not start.
            ProviderError: it cannot answer.
        """
        with self._lock:
            candidate = self._candidates.get(subject.urn)
        if candidate is None:
            candidate = self._start(subject.type, news)
            with self._lock:
                self._candidates[subject.urn] = candidate
        checked = candidate.check_config(subject, _configuration(olds), _configuration(news))
        # Not every plugin hands back what is the engine's.
        kept = {k: v for k, v in news.items() if k in (INTERNAL, "version")}
        return Checked({**kept, **checked.inputs}, checked.failures)

    def diff(self, subject: ResourceState, old: ResourceState, news: Values) -> Diff:
        """Compare the configuration of a provider resource that was just checked."""
        with self._lock:
            candidate = self._candidates.get(subject.urn)
        if candidate is None:
            return Diff(Changes.NONE)
        diff = candidate.diff_config(
            subject,
            "",
            _configuration(old.inputs),
            _configuration(old.outputs),
            _configuration(news),
        )
        if diff.changes is not Changes.UNKNOWN:
            return diff
        same = _configuration(old.inputs) == _configuration(news)
        return dataclasses.replace(diff, changes=Changes.NONE if same else Changes.SOME)

    def needs_replacement(self, old: ResourceState, new: ResourceState) -> bool:
        """Whether what `old` manages has to be made anew by the provider `new`."""
        provider = self.handle(f"{new.urn}::{new.id or UNKNOWN_STRING}").ready
        serving = provider.result()
        if not isinstance(serving, Provider):
            return True
        return serving.diff_config(
            new,
            "",
            _configuration(old.inputs),
            _configuration(old.outputs),
            _configuration(new.inputs),
        ).replace

    def new_id(self) -> str:
        """An id for a provider resource: providers do not give one themselves."""
        return UNKNOWN_STRING if self._request.preview else str(uuid.uuid4())

    def activate(self, state: ResourceState) -> None:
        """Make a provider resource ready for use under its id; it is configured meanwhile."""
        reference = f"{state.urn}::{state.id}"
        with self._lock:
            if reference in self._handles:
                return
            candidate = self._candidates.pop(state.urn, None)
            handle = Handle(state, concurrent.futures.Future())
            self._handles[reference] = handle
        threading.Thread(target=self._configure, args=(handle, candidate), daemon=True).start()

    def handle(self, reference: str) -> Handle:
        """The provider in use under a reference.

        Raises:
            ProviderError: nobody has made it.
        """
        with self._lock:
            handle = self._handles.get(reference)
        if handle is None:
            raise ProviderError(f"unknown provider '{reference}'")
        return handle

    def has(self, reference: str) -> bool:
        """Whether a provider is in use under a reference."""
        with self._lock:
            return reference in self._handles

    def get(self, reference: str) -> ResourceProvider:
        """The configured provider of a reference; waits for it.

        Raises:
            PluginError: it cannot be started.
            ProviderError: it refuses its configuration.
        """
        return self.handle(reference).ready.result()

    # -- the end -------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask all providers to end running calls soon."""
        with self._lock:
            providers = tuple(self._all)
        for provider in providers:
            threading.Thread(target=provider.cancel, daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            providers, spare = tuple(self._all), tuple(self._spare.values())
            self._spare.clear()
        for provider in providers:
            provider.mark_gone()
        end_all([*(p.process for p in providers), *spare])

    # -- below ---------------------------------------------------------------------------

    def _start(self, type_: str, inputs: Values) -> Provider:
        package = type_.removeprefix(PROVIDER_TYPE_PREFIX)
        version = reveal(inputs.get("version"))
        key = (package, version if isinstance(version, str) else "")
        with self._lock:
            process = self._spare.pop(key, None)
        provider = Provider(process or self._plugins.start(*key))
        with self._lock:
            closed = self._closed
            self._all.append(provider)
        if closed:
            provider.close()
            raise ProviderError(f"the provider for '{package}' was stopped")
        root = str(self._request.project.folder)
        provider.handshake(self._engine, root, str(program_folder(self._request)))
        return provider

    def _configure(self, handle: Handle, candidate: Provider | None) -> None:
        state = handle.state
        try:
            inputs = _configuration(state.inputs)
            if self._request.preview and any_unknown(inputs.values()):
                handle.ready.set_result(Unconfigured())
                return
            provider = candidate or self._start(state.type, state.inputs)
            package = state.type.removeprefix(PROVIDER_TYPE_PREFIX)
            id_ = "" if state.id == UNKNOWN_STRING else state.id
            provider.configure(state, id_, inputs, _variables(package, inputs))
            handle.ready.set_result(provider)
        except (ProviderError, PluginError) as error:
            handle.ready.set_exception(error)
        except Exception as error:  # noqa: BLE001 (who waits for the provider gets it)
            handle.ready.set_exception(error)


def default_name(version: str, url: str) -> str:
    """The name of the default provider for a version of a package."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(filter(None, ("default", version, url))))


def default_inputs(
    request: Request, package: str, version: str, url: str, *, every_key: bool
) -> Values:
    """The configuration of a default provider: the stack's for the package, as text.

    With `every_key` it is the whole configuration, with full keys.
    """
    inputs: Values = {}
    for key, value in sorted(request.config.items()):
        namespace, _, name = key.rpartition(":")
        if every_key:
            inputs[key] = _config_input(value)
        elif namespace == package:
            inputs[name] = _config_input(value)
    if version:
        inputs["version"] = version
    if url:
        inputs["pluginDownloadURL"] = url
    if version or url:
        inputs[INTERNAL] = {}
    return inputs


def own_outputs(inputs: Values) -> Values:
    """The outputs of a provider resource: its configuration."""
    return _configuration(inputs)


def _config_input(value: ConfigValue) -> Value:
    return Secret(value.value) if value.secret else value.value


def _configuration(inputs: Values) -> Values:
    return {k: v for k, v in inputs.items() if k != INTERNAL}


def _variables(package: str, inputs: Values) -> dict[str, str]:
    plain = {k: reveal(v) for k, v in inputs.items() if k not in ("version", "pluginDownloadURL")}
    return {
        f"{package}:config:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in plain.items()
    }


def _plugin_of(state: ResourceState) -> tuple[str, str]:
    version = reveal(state.inputs.get("version"))
    package = urns.type_of(state.urn).removeprefix(PROVIDER_TYPE_PREFIX)
    return package, version if isinstance(version, str) else ""
