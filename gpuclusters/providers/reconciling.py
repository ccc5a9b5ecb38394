"""What all our dynamic providers do the same way; each says only how its own thing is kept.

The life of a resource: pure `check` and `diff`; `create` and `update` both call `ensure`, which
reads, compares, then acts, so that an interrupted step can be run again; `read` reports what is
live as outputs and as inputs, so that a refresh shows drift and the next preview a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pulumi.dynamic import (
    CheckResult,
    ConfigureRequest,
    CreateResult,
    DiffResult,
    ReadResult,
    ResourceProvider,
    UpdateResult,
)
from pydantic import BaseModel, ValidationError

from gpuclusters.core import adoption
from gpuclusters.core.converge import Reporter, converge
from gpuclusters.core.errors import UnreachableError
from gpuclusters.core.finding import Level
from gpuclusters.host.model import HostConnection
from gpuclusters.providers import properties
from gpuclusters.providers.properties import InvalidStateError, explained

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost
    from gpuclusters.kube.objects import PatientObjects

SSH_KEY_CONFIG = "gpu-clusters:ssh-private-key"
ADOPT = "adopt"
"""Input of those that can take over what is there: it counts when the resource is made, and never again."""

Properties = dict[str, Any]


I = TypeVar("I", bound=BaseModel)  # noqa: E741


def host(connection: HostConnection, ssh_key: object) -> SshHost:
    """The host, reached with the stack's key, a key file or the agent."""
    # Imported late: a program that only declares resources does not need what reaches hosts, and
    # half a second per run is a lot for `pulumi preview`.
    from gpuclusters.host.connect import find_credentials
    from gpuclusters.host.ssh import SshHost

    return SshHost(connection, find_credentials(ssh_key))


@dataclass(frozen=True, slots=True)
class Live:
    """What is there now: outputs, and the inputs that would describe it."""

    outputs: Properties
    inputs: Properties = field(default_factory=dict)


class ReconcilingProvider(ResourceProvider, Generic[I]):
    """Base of the providers. It holds no state but what `configure` is told."""

    model: ClassVar[type[BaseModel]]
    identity: ClassVar[frozenset[str]]
    """Inputs whose change makes another thing of it: a replacement."""
    asked_through: ClassVar[str] = ""
    """Input that says whom to ask about the thing and is no part of it: another one changes nothing."""
    sensitive: ClassVar[frozenset[str]] = frozenset()
    """Inputs whose value is never shown."""
    drifts: ClassVar[str] = ""
    """Output that a refresh fills with what the inputs do not show, where there is one."""
    changes_machine: ClassVar[bool] = False
    """Whether it changes the machine that its input `connection` leads to; it then has that one alone."""
    exclusive: ClassVar[bool] = False
    """Whether no other step of this process may change that machine at the same time."""
    ssh_key: object = None

    def configure(self, req: ConfigureRequest) -> None:
        """Take the SSH key from the stack's configuration; whether it is needed shows later."""
        self.ssh_key = req.config.get(SSH_KEY_CONFIG)

    def check(self, _olds: Properties, news: Properties) -> CheckResult:
        """Validate all that is known; pure."""
        found = properties.failures(self.model, news, self.sensitive)
        return CheckResult(news, properties.told(found))

    def diff(self, _id: str, olds: Properties, news: Properties) -> DiffResult:
        """Compare inputs, and outputs that tell of drift; pure."""
        given, passed = properties.plain(news), {ADOPT, self.asked_through}
        changed = properties.changed(self.model, olds, news)
        names = [name for name in changed if name.partition(".")[0] not in passed]
        # What is not known yet is not taken for another host: most often it is the same one.
        known = (name for name in names if not properties.has_unknown(_at(given, name)))
        return DiffResult(
            changes=bool(names) or self.has_drifted(properties.plain(olds)),
            replaces=sorted({name.partition(".")[0] for name in known if name in self.identity}),
            stables=[],
            # A host or board that only got another name is still the same: making the new one
            # first would find the old in place, and deleting the old would take the new away.
            delete_before_replace=True,
        )

    def create(self, props: Properties) -> CreateResult:
        with self._explained("create", props):
            inputs = self._parsed(props)
            with self._alone(inputs):
                if getattr(inputs, ADOPT, False):
                    what = f"{self._name} {inputs.natural_id}"
                    adoption.require_no_diff(what, self.differences(inputs))
                outputs = self.ensure(inputs, {})
            return CreateResult(inputs.natural_id, {**props, **outputs})

    def update(self, _id: str, olds: Properties, news: Properties) -> UpdateResult:
        """Bring it to the new inputs, knowing what was made before."""
        with self._explained("update", olds, news):
            inputs = self._parsed(news)
            with self._alone(inputs):
                outputs = self.ensure(inputs, properties.plain(olds))
            return UpdateResult({**news, **outputs})

    def read(self, id_: str, props: Properties) -> ReadResult:
        """What is live; gone is an empty id."""
        with self._explained("read", props):
            live = self.observe(self._parsed(props), properties.plain(props))
            if live is None:
                return ReadResult(None, {})
            known = properties.inputs_of(self.model, props)
            inputs = known | live.inputs
            if properties.failures(self.model, inputs, self.sensitive):
                # What is live cannot be said in inputs. Kept in the state it would leave a
                # resource that can be neither read nor deleted; the outputs tell of the drift.
                inputs = known
            return ReadResult(id_, {**props, **inputs, **live.outputs}, inputs)

    def delete(self, _id: str, props: Properties) -> None:
        """Remove it; absent is fine."""
        with self._explained("delete", props):
            try:
                inputs = self._parsed(props)
                with self._alone(inputs):
                    self.remove(inputs, properties.plain(props))
            except UnreachableError as error:
                way_out = (
                    "if it is gone for good, take this resource out with `pulumi state delete`"
                )
                remedy = f"{error.remedy}; {way_out}"
                raise UnreachableError(error.where, error.tried, error.problem, remedy) from error

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether the outputs of the last refresh tell of drift that the inputs do not show."""
        return bool(outputs.get(self.drifts))

    def differences(self, inputs: I) -> Sequence[str]:
        """How what is there differs from what is declared, asked before it is taken over; empty if absent."""
        raise NotImplementedError

    def ensure(self, inputs: I, before: Properties) -> Properties:
        """Read, compare, act; answers all outputs. `before` is empty on creation."""
        raise NotImplementedError

    def observe(self, inputs: I, before: Properties) -> Live | None:  # noqa: ARG002
        """What is live now, or None when it is gone; of one that only looks, what it saw stays true."""
        return Live({})

    def remove(self, inputs: I, before: Properties) -> None:
        """Remove what `ensure` made; one that only looks made nothing."""

    @contextmanager
    def _alone(self, inputs: Any) -> Iterator[None]:
        """Nobody else changes the machine meanwhile, not even what a killed run has left at work there."""
        if not self.changes_machine:
            yield
            return
        reached = host(inputs.connection, self.ssh_key)
        with (
            reached.writing(f"change {inputs.natural_id}"),
            reached.exclusive if self.exclusive else nullcontext(),
        ):
            yield

    @property
    def _name(self) -> str:
        return type(self).__name__.removesuffix("Provider")

    def _parsed(self, props: Properties) -> Any:
        given = properties.inputs_of(self.model, props)
        try:
            return self.model.model_validate(given, by_name=True)
        except ValidationError as error:
            faults = properties.failures(self.model, given, self.sensitive)
            said = "; ".join(f"{fault.property}: {fault.reason}" for fault in faults)
            raise InvalidStateError(f"{type(self).__name__}: {said}") from error

    def _explained(self, step: str, *bags: Properties) -> AbstractContextManager[None]:
        secrets = [str(bag[k]) for bag in bags for k in self.sensitive if bag.get(k)]
        if isinstance(self.ssh_key, str):
            secrets.append(self.ssh_key)
        return explained(f"{step} {self._name}", secrets)


class ConvergingProvider(ReconcilingProvider[I]):
    """Keeps what a capability of a host converges; see `core.converge.Capability`."""

    kept_by: ClassVar[str]
    """What makes its capability, as `MODULE:NAME`; loaded when it is needed: a program only declares."""
    changes_machine = True

    def capability(self, inputs: I, before: Properties) -> Any:
        """What brings this host to these inputs; `before` is empty on creation."""
        reach = partial(host, ssh_key=self.ssh_key)
        return resolve_name(self.kept_by)(inputs, reach, before)

    def ensure(self, inputs: I, before: Properties) -> Properties:
        """Converge, and prove that it serves."""
        capability = self.capability(inputs, before)
        made_before = bool(before) and self._parsed(before) == inputs
        live = converge(capability, Reporter(), made_before=made_before)
        return self._told(capability, capability.prove(live) or live)

    def observe(self, inputs: I, before: Properties) -> Live | None:
        """What is there, with everything that differs as `drift`."""
        capability = self.capability(inputs, before)
        live = capability.seen()
        if capability.is_absent(live):
            return None
        return Live(self._told(capability, live), capability.live_inputs(live))

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something that `up` repairs, or refuses."""
        return any(one["level"] != Level.WARN for one in outputs.get("drift") or ())

    def differences(self, inputs: I) -> Sequence[str]:
        """In words, what forbids to take over what is there."""
        capability = self.capability(inputs, {})
        return [finding.problem for finding in capability.differences(capability.seen())]

    def remove(self, inputs: I, before: Properties) -> None:
        self.capability(inputs, before).remove()

    def _told(self, capability: Any, live: Any) -> Properties:
        """All outputs, with what is found as `drift`: after `up` that is warnings at most."""
        drift = [finding.to_output() for finding in capability.findings(live)]
        return {**capability.outputs(live), "drift": drift}


class ClusterProvider(ReconcilingProvider[I]):
    """Keeps something in the cluster that the input `kubeconfig` leads to."""

    identity = frozenset({"cluster"})
    sensitive = frozenset({"kubeconfig"})

    def cluster(self, inputs: Any) -> PatientObjects:
        # Imported late: the client takes half a second to load, and a program only declares.
        from gpuclusters.kube.objects import PatientObjects

        return PatientObjects(inputs.kubeconfig)


class GeneratedSecret(ResourceProvider):
    """Made once and kept in the state alone: nothing to compare it with, nothing to delete."""

    owner: ClassVar[str]
    """Input that says whose they are."""

    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        return CheckResult(news, [])

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Another owner has others."""
        other = [self.owner] if olds.get(self.owner) != news.get(self.owner) else []
        return DiffResult(bool(other), other, [], delete_before_replace=False)

    def update(self, _id: str, olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Nothing changes in place."""
        return UpdateResult(dict(olds))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """They live in the state alone."""
        return ReadResult(id_, dict(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Forgotten with the state."""


def _at(bag: Properties, path: str) -> Any:
    head, _, rest = path.partition(".")
    value = bag.get(head)
    return value.get(rest) if rest and isinstance(value, Mapping) else value
