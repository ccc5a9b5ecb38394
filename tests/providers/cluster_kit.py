"""Nodes of a cluster of simulated hosts, one resource each, as an engine keeps them."""

from typing import Any, ClassVar

from pulumi.dynamic import ResourceProvider

from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import Made, ProviderProcess, Read


class Nodes:
    """Hosts, and what was made of each of them."""

    kind: ClassVar[type[ResourceProvider]]

    def __init__(self, provider: ProviderProcess) -> None:
        self.provider = provider
        self.made: dict[str, Made] = {}

    def inputs(self, host: SimulatedHost, **changes: Any) -> dict[str, Any]:
        """The inputs of one host."""
        raise NotImplementedError

    def create(self, host: SimulatedHost, **changes: Any) -> Made:
        """Join."""
        made = self.provider.create(self.kind, self.inputs(host, **changes))
        self.made[host.name] = made
        return made

    def update(self, host: SimulatedHost, **changes: Any) -> Made:
        """Bring it to other inputs, or back to its own."""
        inputs = self.inputs(host, **changes)
        made = self.provider.update(self.kind, self.made[host.name], inputs)
        self.made[host.name] = made
        return made

    def refresh(self, host: SimulatedHost) -> Read:
        """Look at the host; the state is what was seen."""
        read = self.provider.read(self.kind, self.made[host.name])
        self.made[host.name] = Made(read.id, read.outputs)
        return read

    def differs(self, host: SimulatedHost, **changes: Any) -> tuple[bool, list[str]]:
        """Whether the engine would act, and which inputs would make another resource of it."""
        news = self.inputs(host, **changes)
        found = self.provider.diff(self.kind, self.made[host.name].outputs, news)
        return found.changes, found.replaces

    def delete(self, host: SimulatedHost) -> None:
        """Take it out."""
        self.provider.delete(self.kind, self.made[host.name])
