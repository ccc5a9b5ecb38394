"""Nodes of a cluster of simulated hosts, one resource each, as an engine keeps them."""

from typing import Any, ClassVar

from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import Properties, ProviderProcess, Resource


class Nodes:
    """Hosts, and what was made of each of them."""

    kind: ClassVar[str]

    def __init__(self, provider: ProviderProcess) -> None:
        self.provider = provider
        self.kept: dict[str, Resource] = {}

    def inputs(self, host: SimulatedHost, **changes: Any) -> Properties:
        """The inputs of one host."""
        raise NotImplementedError

    def node(self, host: SimulatedHost, **changes: Any) -> Resource:
        """The resource of a host, wanted as it must be now."""
        one = self.kept.setdefault(host.name, self.provider.of(self.kind, {}))
        one.process, one.wanted = self.provider, self.inputs(host, **changes)
        return one

    def create(self, host: SimulatedHost, **changes: Any) -> Properties:
        """Join."""
        return self.node(host, **changes).create()
