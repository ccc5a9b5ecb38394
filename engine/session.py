"""What all parts of one deployment share."""

import dataclasses
import datetime
import threading
from collections.abc import Callable

from engine import urn as urns
from engine.graph import Graph
from engine.keeper import Keeper
from engine.provider import ResourceProvider
from engine.providers import Registry
from engine.reporter import Reporter
from engine.request import Request
from engine.state import STACK_TYPE, ResourceState, Snapshot


@dataclasses.dataclass(slots=True)
class Progress:
    """What has been decided so far. Guarded by `lock`; states are kept by identity.

    `registered` are the URNs that the program has claimed; `aliased` maps an old URN to the one
    that took it over; `kept` are old URNs that are not to be deleted at the end; `deleted` are
    URNs with a delete step; `condemned` are old states with one; `early` is what was kept because
    something else needs it, before the program has registered it.
    """

    lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)
    registered: set[str] = dataclasses.field(default_factory=set)
    aliased: dict[str, str] = dataclasses.field(default_factory=dict)
    alias_of: dict[str, str] = dataclasses.field(default_factory=dict)
    kept: set[str] = dataclasses.field(default_factory=set)
    deleted: set[str] = dataclasses.field(default_factory=set)
    condemned: set[int] = dataclasses.field(default_factory=set)
    replaced_with: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    replaced: set[str] = dataclasses.field(default_factory=set)
    failed: set[str] = dataclasses.field(default_factory=set)
    skipped_creates: set[str] = dataclasses.field(default_factory=set)
    news: dict[str, ResourceState] = dataclasses.field(default_factory=dict)
    early: dict[str, ResourceState] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class Session:
    """One deployment: its request, the state it starts from, and who does what.

    `saw_error` is set by what makes a plan fail without ending it.
    """

    request: Request
    base: Snapshot
    registry: Registry
    keeper: Keeper
    reporter: Reporter
    progress: Progress = dataclasses.field(default_factory=Progress)
    olds: dict[str, ResourceState] = dataclasses.field(default_factory=dict)
    graph: Graph = dataclasses.field(default_factory=lambda: Graph(()))
    saw_error: bool = False
    clock: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)

    def __post_init__(self) -> None:
        self.start_from(self.base)

    @property
    def preview(self) -> bool:
        return self.request.preview

    @property
    def stack_urn(self) -> str:
        request = self.request
        name = f"{request.project.name}-{request.stack}"
        return urns.make(request.stack, request.project.name, "", STACK_TYPE, name)

    def start_from(self, base: Snapshot) -> None:
        """Take a state as the one that the program is compared with."""
        self.base = base
        self.olds = {r.urn: r for r in base.resources if not r.delete}
        self.graph = Graph(base.resources)

    def provider_for(self, state: ResourceState) -> ResourceProvider:
        """The configured provider of a resource.

        Raises:
            PluginError: it cannot be started.
            ProviderError: it refuses its configuration, or nobody has made it.
        """
        self.ensure_provider(state.provider)
        return self.registry.get(state.provider)

    def ensure_provider(self, reference: str) -> None:
        """Make a provider of the old state available, if it is not in use yet."""
        if not reference or self.registry.has(reference):
            return
        urn, id_ = urns.split_reference(reference)
        now = self.progress.aliased.get(urn)
        for state in self.base.resources:
            if state.id == id_ and state.urn in (urn, now):
                self.registry.activate(dataclasses.replace(state, urn=urn))
                return

    def now(self) -> str:
        return self.clock().isoformat().replace("+00:00", "Z")
