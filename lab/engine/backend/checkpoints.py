"""States of stacks: reading, checking, and writing them around every step."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from lab.engine.backend.bucket import Bucket
from lab.engine.backend.layout import StackReference
from lab.engine.secrets import SecretsManager, StableEncrypter
from lab.engine.state import VERSION, PendingOperation, ResourceState, Snapshot, StateError
from lab.engine.usererror import UserError
from lab.engine.values import Encrypted, Plaintext

CURRENT_VERSION = 3
_KNOWN_VERSIONS = (3, 4)
_NAMES = tuple(field.name for field in dataclasses.fields(ResourceState))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A state file as it lies on disk, secrets encrypted; `deployment` is None if never set."""

    version: int
    deployment: Mapping[str, Any] | None

    @property
    def resources(self) -> list[Mapping[str, Any]]:
        """The resources."""
        return list((self.deployment or {}).get("resources") or ())

    @property
    def secrets_provider(self) -> Mapping[str, Any] | None:
        """How its secrets are encrypted."""
        provider = (self.deployment or {}).get("secrets_providers")
        return provider if isinstance(provider, dict) else None


def read(bucket: Bucket, stack: StackReference) -> Checkpoint:
    """The state file of a stack.

    Raises:
        UserError: it is not there, damaged, or of a version that is not understood.
    """
    path = bucket.path(stack.checkpoint)
    try:
        document = json.loads(bucket.read(stack.checkpoint))
    except ValueError as error:
        raise _corrupt(bucket, stack, f"is not valid JSON ({error})") from error
    checkpoint = document.get("checkpoint") if isinstance(document, dict) else None
    if not isinstance(checkpoint, dict):
        raise _corrupt(bucket, stack, "has no 'checkpoint'")
    version, features = document.get("version"), document.get("features") or []
    if version not in _KNOWN_VERSIONS or features:
        what = f"features {', '.join(map(str, features))}" if features else f"version {version}"
        raise UserError(
            f"{path}: the state has {what}, which the embedded engine does not understand;"
            " use the Pulumi CLI for this stack"
        )
    return Checkpoint(version, checkpoint.get("latest"))


def write(
    bucket: Bucket, stack: StackReference, deployment: Mapping[str, Any], version: int
) -> None:
    """Replace the state file of a stack; the one before stays as ``.bak``."""
    latest = json.dumps(deployment, separators=(",", ":"), ensure_ascii=False)
    _replace(bucket, stack, _envelope(stack, latest, version))


def empty_deployment(manager: SecretsManager) -> dict[str, Any]:
    """The deployment of a new stack."""
    return Snapshot(secrets_providers=manager.state()).to_checkpoint(manager.crypter.encrypt)


class CheckpointStore:
    """Loads and saves the state of one stack during a run (`SnapshotStore` of the engine).

    `save` is called twice per step, so what did not change is not made again: the text of a
    resource is kept until one of its fields is another object.
    """

    def __init__(
        self,
        bucket: Bucket,
        stack: StackReference,
        manager: SecretsManager,
        open_with: Callable[[str], SecretsManager],
    ) -> None:
        self._bucket = bucket
        self._stack = stack
        self._manager = manager
        self._open_with = open_with
        self._encrypter = StableEncrypter(manager.crypter)
        self._texts: dict[int, tuple[ResourceState, tuple[Any, ...], str]] = {}
        self._version = CURRENT_VERSION
        self._mutex = threading.Lock()
        self.durable = True

    def load(self) -> Snapshot:
        """The last saved snapshot.

        Raises:
            UserError: the state is damaged, or its secrets cannot be opened.
        """
        checkpoint = read(self._bucket, self._stack)
        self._version = checkpoint.version
        stored = stored_manager(checkpoint, self._open_with)
        if stored is None or stored.salt == self._manager.salt:
            snapshot = open_snapshot(
                self._bucket, self._stack, checkpoint, self._manager, self._encrypter
            )
        else:
            # The stack has a new passphrase: what was encrypted under the old one must not stay.
            snapshot = detached(open_snapshot(self._bucket, self._stack, checkpoint, stored))
        return dataclasses.replace(snapshot, secrets_providers=self._manager.state())

    def save(self, snapshot: Snapshot) -> None:
        """Replace the state; returns when it is on the disk.

        Raises:
            UserError: it cannot be written; the state of before is still there.
        """
        with self._mutex:
            _replace(self._bucket, self._stack, self._render(snapshot), durable=self.durable)

    def _render(self, snapshot: Snapshot) -> str:
        kept: dict[int, tuple[ResourceState, tuple[Any, ...], str]] = {}
        resources = [self._text(state, kept) for state in snapshot.resources]
        pending = [
            f'{{"resource":{self._text(operation.resource, kept)},"type":"{operation.type}"}}'
            for operation in snapshot.pending_operations
        ]
        self._texts = kept
        manifest = {"time": _now(), "magic": _magic(), "version": VERSION}
        providers = snapshot.secrets_providers or self._manager.state()
        parts = [f'"manifest":{_json(manifest)}', f'"secrets_providers":{_json(providers)}']
        if resources:
            parts.append(f'"resources":[{",".join(resources)}]')
        if pending:
            parts.append(f'"pending_operations":[{",".join(pending)}]')
        parts.append(f'"metadata":{_json(snapshot.metadata)}')
        parts += [f"{_json(key)}:{_json(value)}" for key, value in snapshot.extra.items()]
        return _envelope(self._stack, "{" + ",".join(parts) + "}", self._version)

    def _text(
        self,
        state: ResourceState,
        kept: dict[int, tuple[ResourceState, tuple[Any, ...], str]],
    ) -> str:
        fields = tuple(_held(name, getattr(state, name)) for name in _NAMES)
        known = self._texts.get(id(state))
        if known is None or known[1] != fields:
            form = Encrypted(self._encrypter.writer(state.urn))
            known = (state, fields, _json(state.to_json(form)))
        kept[id(state)] = known
        return known[2]


def open_snapshot(
    bucket: Bucket,
    stack: StackReference,
    checkpoint: Checkpoint,
    manager: SecretsManager,
    encrypter: StableEncrypter | None = None,
) -> Snapshot:
    """The snapshot of a state file, its secrets opened.

    Raises:
        UserError: a secret cannot be opened, or the state is not valid.
    """
    deployment = checkpoint.deployment
    if deployment is None:
        return Snapshot(secrets_providers=manager.state())
    keep = encrypter or StableEncrypter(manager.crypter)
    try:
        # One by one, so that each secret is remembered for the resource it belongs to.
        resources = [
            ResourceState.from_json(r, keep.reader(str(r.get("urn")))) for r in checkpoint.resources
        ]
        pending = [
            PendingOperation(
                ResourceState.from_json(p["resource"], keep.reader(str(p["resource"].get("urn")))),
                p["type"],
            )
            for p in deployment.get("pending_operations") or ()
        ]
        rest = {k: v for k, v in deployment.items() if k not in ("resources", "pending_operations")}
        shell = Snapshot.from_checkpoint(rest, manager.crypter.decrypt)
    except (StateError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(bucket, stack, f"cannot be understood ({error})") from error
    return dataclasses.replace(shell, resources=tuple(resources), pending_operations=tuple(pending))


def detached(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the ciphertexts of its secrets, for use under another key."""

    def unexpected(_: str) -> str:
        raise StateError("a secret is encrypted that was just written in plain text")

    return Snapshot.from_checkpoint(snapshot.to_json(Plaintext()), unexpected)


def stored_manager(
    checkpoint: Checkpoint, open_with: Callable[[str], SecretsManager]
) -> SecretsManager | None:
    """The secrets manager that a state names; None if it names none.

    Raises:
        UserError: the state uses another kind of provider than a passphrase.
    """
    provider = checkpoint.secrets_provider
    if provider is None:
        return None
    salt = (provider.get("state") or {}).get("salt")
    if provider.get("type") != "passphrase" or not isinstance(salt, str):
        raise UserError(
            f"the state's secrets are kept by {provider.get('type')!r}; the embedded engine knows"
            " passphrase secrets only: use the Pulumi CLI for this stack"
        )
    return open_with(salt)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Holds an object that is compared by identity: property maps are never changed in place."""

    held: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    __hash__ = object.__hash__


def _held(name: str, value: Any) -> Any:
    if name in ("inputs", "outputs", "replacement_trigger"):
        return _Same(value)
    return dict(value) if isinstance(value, dict) else value


def _replace(bucket: Bucket, stack: StackReference, text: str, *, durable: bool = True) -> None:
    if bucket.exists(stack.checkpoint):
        bucket.copy(stack.checkpoint, f"{stack.checkpoint}.bak")
    bucket.write(stack.checkpoint, text.encode(), durable=durable)


def _envelope(stack: StackReference, latest: str, version: int) -> str:
    return f'{{"version":{version},"checkpoint":{{"stack":"{stack}","latest":{latest}}}}}'


def _corrupt(bucket: Bucket, stack: StackReference, what: str) -> UserError:
    path = bucket.path(stack.checkpoint)
    backup = bucket.path(f"{stack.checkpoint}.bak")
    remedy = (
        f"the state of one step before is in {backup}"
        if backup.exists()
        else "there is no backup beside it"
    )
    return UserError(
        f"the state of stack {stack.name} in {path} {what}; {remedy},"
        f" older ones are in {bucket.path(stack.backups)}"
    )


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")


def _magic() -> str:
    return hashlib.sha256(VERSION.encode()).hexdigest()
