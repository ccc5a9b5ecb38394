"""States of stacks: reading, opening, and replacing them."""

from collections.abc import Callable
from typing import Any

from engine.backend.bucket import Bucket
from engine.backend.envelope import (
    Checkpoint,
    EnvelopeError,
    parse,
    render,
    to_text,
)
from engine.backend.layout import StackReference
from engine.secrets import SecretsManager
from engine.state import Snapshot, StateError
from engine.usererror import UserError
from engine.values import plaintext


def read(bucket: Bucket, stack: StackReference) -> Checkpoint:
    """The state of a stack as of now. A run may be going on, so it may be outdated at once."""
    try:
        return parse(bucket.read(stack.checkpoint))
    except EnvelopeError as error:
        raise corrupt(bucket, stack, str(error)) from error


def write(bucket: Bucket, stack: StackReference, checkpoint: Checkpoint) -> None:
    """Replace the state of a stack; the one before stays as ``.bak``."""
    keep_previous(bucket, stack)
    replace(bucket, stack, checkpoint, to_text(checkpoint.deployment))


def replace(bucket: Bucket, stack: StackReference, checkpoint: Checkpoint, latest: str) -> None:
    """Replace the file of a state at once; `latest` is the deployment as text."""
    bucket.write(stack.checkpoint, render(str(stack), checkpoint, latest).encode())


def keep_previous(bucket: Bucket, stack: StackReference) -> None:
    """Keep the state as it is now as ``.bak``."""
    if bucket.exists(stack.checkpoint):
        bucket.copy(stack.checkpoint, f"{stack.checkpoint}.bak")


def empty_deployment(manager: SecretsManager) -> dict[str, Any]:
    return Snapshot(secrets_providers=manager.state()).to_checkpoint(manager.encrypt)


def open_snapshot(
    bucket: Bucket,
    stack: StackReference,
    checkpoint: Checkpoint,
    manager: SecretsManager,
) -> Snapshot:
    """The snapshot of a state file, its secrets opened."""
    try:
        return opened(checkpoint, manager)
    except StateError as error:
        raise corrupt(bucket, stack, f"cannot be understood ({error})") from error


def opened(checkpoint: Checkpoint, manager: SecretsManager) -> Snapshot:
    """The snapshot of a state, its secrets opened.

    Raises:
        StateError: the state is not valid.
        UserError: a secret cannot be opened.
    """
    deployment = checkpoint.deployment
    if deployment is None:
        return Snapshot(secrets_providers=manager.state())
    try:
        return Snapshot.from_checkpoint(deployment, manager.decrypt)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(str(error)) from error


def detached(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the ciphertexts of its secrets, for use under another key."""

    def unexpected(_: str) -> str:
        raise StateError("a secret is encrypted that was just written in plain text")

    return Snapshot.from_checkpoint(snapshot.to_json(plaintext), unexpected)


def stored_manager(
    checkpoint: Checkpoint, open_with: Callable[[str], SecretsManager]
) -> SecretsManager | None:
    """The secrets manager that a state names; None if it names none."""
    provider = checkpoint.secrets_provider
    if provider is None:
        return None
    state = provider.get("state")
    salt = state.get("salt") if isinstance(state, dict) else None
    if provider.get("type") == "passphrase" and not isinstance(salt, str):
        raise UserError(
            "the state's secrets are kept under a passphrase, but the state has no salt to open them"
            " with: take it from an older state, or from 'encryptionsalt' of the stack's settings"
        )
    if provider.get("type") != "passphrase" or not isinstance(salt, str):
        raise UserError(
            f"the state's secrets are kept by {provider.get('type')!r}; the embedded engine knows"
            " passphrase secrets only: use the Pulumi CLI for this stack"
        )
    return open_with(salt)


def corrupt(bucket: Bucket, stack: StackReference, what: str) -> UserError:
    """What is said of a state that cannot be used, and what to do about it."""
    path = bucket.path(stack.checkpoint)
    backup = bucket.path(f"{stack.checkpoint}.bak")
    before = (
        f"{backup} has that of before the last change" if backup.exists() else "none is beside it"
    )
    return UserError(
        f"the state of stack {stack.name} in {path} {what}; nothing was changed."
        f" Put an older state in its place: {before}, older ones are in {bucket.path(stack.backups)}"
    )
