"""What is kept by `converge`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import pulumi

from gpuclusters.core.converge import Capability, converge
from gpuclusters.core.finding import Finding, Level
from gpuclusters.providers.reconciling import I, Live, Properties, ReconcilingProvider, host
from gpuclusters.providers.resource import ModelResource

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost

L = TypeVar("L")
DRIFT = "drift"


class HostCapability(Capability[L], Protocol[L]):
    """A capability of a host as a resource keeps it."""

    def differences(self, live: L) -> Iterable[Finding]:
        """What of the findings forbids to take over what is there."""

    def remove(self) -> None:
        """Take away what was made; absent is fine."""


@runtime_checkable
class Provable(Protocol[L]):
    """A capability that is tried once nothing is left to repair."""

    def prove(self, live: L) -> L | None:
        """Refuse if it does not serve what it was made for; may answer what it saw then."""


class ConvergingProvider(ReconcilingProvider[I], Generic[I, L]):
    """A provider says what its capability is and what of the live state are outputs."""

    changes_machine = True

    def capability(self, inputs: I, before: Properties, host: SshHost) -> HostCapability[L]:
        """What brings this host to these inputs; `before` is empty on creation."""
        raise NotImplementedError

    def outputs(self, inputs: I, live: L) -> Properties:
        """Outputs beside `drift`."""
        raise NotImplementedError

    def is_absent(self, inputs: I, live: L) -> bool:
        """Whether nothing of it is there any more."""
        raise NotImplementedError

    def live_inputs(self, inputs: I, live: L) -> Properties:  # noqa: ARG002
        """Inputs that would describe what is there, as far as it can be said in inputs."""
        return {}

    def ensure(self, inputs: I, before: Properties) -> Properties:
        """Converge."""
        from gpuclusters.core.converge import StderrReporter

        capability = self._capability(inputs, before)
        live = converge(capability, StderrReporter(), made_before=self.is_made(inputs, before))
        if isinstance(capability, Provable):
            live = capability.prove(live) or live
        return self.kept(inputs, capability, live)

    def kept(self, inputs: I, capability: HostCapability[L], live: L) -> Properties:
        """All outputs, with what is found as `drift`: after `up` that is warnings at most."""
        drift = [finding.to_output() for finding in capability.findings(live)]
        return {**self.outputs(inputs, live), DRIFT: drift}

    def is_made(self, inputs: I, before: Properties) -> bool:
        """Whether this very thing was made before, so that what differs is drift."""
        return bool(before) and self._parsed(before) == inputs

    def observe(self, inputs: I, before: Properties) -> Live | None:
        """What is there, with everything that differs as `drift`."""
        capability = self._capability(inputs, before)
        live = capability.observe()
        if self.is_absent(inputs, live):
            return None
        return Live(self.kept(inputs, capability, live), self.live_inputs(inputs, live))

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something that `up` repairs, or refuses."""
        return any(one["level"] != Level.WARN for one in outputs.get(DRIFT) or ())

    def differences(self, inputs: I) -> Sequence[str]:
        """In words, what forbids to take over what is there."""
        capability = self._capability(inputs, {})
        return [finding.problem for finding in capability.differences(capability.observe())]

    def remove(self, inputs: I, before: Properties) -> None:
        """Take it away."""
        self._capability(inputs, before).remove()

    def _capability(self, inputs: I, before: Properties) -> HostCapability[L]:
        connection = inputs.connection  # type: ignore[attr-defined]
        return self.capability(inputs, before, host(connection, self.ssh_key))


class ConvergingResource(ModelResource):
    """What a capability keeps."""

    drift: pulumi.Output[Sequence[Mapping[str, Any]]]
    """Findings of the last refresh: code, problem, path, level; empty after `up`."""
