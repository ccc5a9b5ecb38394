"""States as documents: the file of a stack, and what `stack export` and `stack import` carry."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.backend.integrity import fault
from engine.usererror import UserError

CURRENT_VERSION = 3
KNOWN_VERSIONS = (3, 4)
_EXPORTED = ("version", "deployment", "features")


class EnvelopeError(ValueError):
    """A file that is not a state; says what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """A state file, secrets encrypted; `deployment` is None if never set.

    `features` are what a reader has to understand. `extra` and `beside` are fields that nobody
    knows: in the file, and beside the deployment.
    """

    version: int
    deployment: Mapping[str, Any] | None
    features: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def resources(self) -> list[Mapping[str, Any]]:
        return list((self.deployment or {}).get("resources") or ())

    @property
    def pending_operations(self) -> list[Mapping[str, Any]]:
        return list((self.deployment or {}).get("pending_operations") or ())

    @property
    def secrets_provider(self) -> Mapping[str, Any] | None:
        provider = (self.deployment or {}).get("secrets_providers")
        return provider if isinstance(provider, dict) else None


def parse(content: bytes) -> Checkpoint:
    """The state in a file.

    Raises:
        EnvelopeError: it is none, or of a version that is not understood.
    """
    if not content.strip(b"\0 \r\n\t"):
        raise EnvelopeError("is empty, which is not valid JSON")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"is not valid JSON ({error})") from error
    inner = document.get("checkpoint") if isinstance(document, dict) else None
    if not isinstance(inner, dict):
        raise EnvelopeError("has no 'checkpoint'")
    version, features = document.get("version"), document.get("features") or []
    if version not in KNOWN_VERSIONS or isinstance(version, bool):
        raise EnvelopeError(
            f"has version {version!r}, which the embedded engine does not understand"
            f" (it knows {' and '.join(map(str, KNOWN_VERSIONS))}); use the Pulumi CLI for this stack"
        )
    if not isinstance(features, list) or not all(isinstance(f, str) for f in features):
        raise EnvelopeError("has 'features' that are not a list of texts")
    deployment = inner.get("latest")
    check_shape(deployment)
    return Checkpoint(
        version=version,
        deployment=deployment,
        features=tuple(features),
        extra={k: v for k, v in document.items() if k not in ("version", "checkpoint", "features")},
        beside={k: v for k, v in inner.items() if k not in ("stack", "latest")},
    )


def render(stack: str, checkpoint: Checkpoint, latest: str) -> str:
    """The text of a state file; `latest` is the deployment as JSON text."""
    parts = [f'"version":{checkpoint.version}']
    if checkpoint.features:
        parts.append(f'"features":{to_text(list(checkpoint.features))}')
    inner = "".join(f",{to_text(k)}:{to_text(v)}" for k, v in checkpoint.beside.items())
    parts.append(f'"checkpoint":{{"stack":{to_text(stack)},"latest":{latest}{inner}}}')
    parts += [f"{to_text(k)}:{to_text(v)}" for k, v in checkpoint.extra.items()]
    return "{" + ",".join(parts) + "}"


def check_shape(deployment: Any) -> None:
    """Make sure that what is read of a deployment is of the types that it has to be of.

    Raises:
        EnvelopeError: something is not, and this is what.
    """
    if deployment is None:
        return
    if not isinstance(deployment, dict):
        raise EnvelopeError("cannot be understood (its deployment is not an object)")
    for key in ("resources", "pending_operations"):
        entries = deployment.get(key)
        if entries is None:
            continue
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise EnvelopeError(f"cannot be understood ({key!r} is not a list of objects)")
    for key in ("manifest", "metadata", "secrets_providers"):
        if not isinstance(deployment.get(key), (dict, type(None))):
            raise EnvelopeError(f"cannot be understood ({key!r} is not an object)")


def to_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def exported(checkpoint: Checkpoint, deployment: Mapping[str, Any] | None) -> dict[str, Any]:
    """The document of an export; `deployment` is that of the checkpoint or a readable form of it."""
    features = {"features": list(checkpoint.features)} if checkpoint.features else {}
    return {
        "version": checkpoint.version,
        **features,
        "deployment": deployment,
        **checkpoint.extra,
    }


def imported(document: Any, *, force: bool) -> Checkpoint:
    """The state in the document of an export; `force` takes one whose references are broken."""
    found = document if isinstance(document, dict) else {}
    version, features = found.get("version"), found.get("features") or []
    deployment = found.get("deployment")
    if version not in KNOWN_VERSIONS or not isinstance(deployment, dict):
        raise UserError(
            "the deployment to import has to be {version: 3, deployment: {…}}, as `stack export`"
            f" writes it (got version {version!r})"
        )
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        raise UserError("the deployment to import has 'features' that are not a list of texts")
    try:
        check_shape(deployment)
    except EnvelopeError as error:
        raise UserError(f"the deployment to import {error}") from error
    wrong = "" if force else fault(deployment)
    if wrong:
        raise UserError(
            f"the deployment to import cannot be worked with: {wrong};"
            " mend it, or pass --force to import it all the same"
        )
    extra = {key: value for key, value in found.items() if key not in _EXPORTED}
    return Checkpoint(version, deployment, tuple(features), extra)
