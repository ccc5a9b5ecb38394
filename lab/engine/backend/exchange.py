"""States on their way in and out: the documents of `stack export` and `stack import`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.engine.backend.envelope import KNOWN_VERSIONS, Checkpoint, EnvelopeError, check_shape
from lab.engine.backend.integrity import fault
from lab.engine.usererror import UserError

_FIELDS = ("version", "deployment", "features")


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
    extra = {key: value for key, value in found.items() if key not in _FIELDS}
    return Checkpoint(version, deployment, tuple(features), extra)
