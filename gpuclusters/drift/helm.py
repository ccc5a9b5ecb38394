"""Objects of a Helm release: what the release says it rendered, against what is there.

Pulumi looks at a release as a whole; of the objects in it nobody looks at any again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from gpuclusters.drift import comparing
from gpuclusters.drift.finding import Finding
from gpuclusters.drift.owners import who

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_LINES = 12
_KEEP = "helm.sh/resource-policy"
_HOOK = "helm.sh/hook"
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"


class ManifestError(Exception):
    """A manifest that cannot be read. One sentence, with nothing of its content."""


class Reference(NamedTuple):
    """What names an object in a cluster."""

    api_version: str
    kind: str
    namespace: str
    """Empty for objects of the whole cluster."""
    name: str

    @property
    def called(self) -> str:
        """As people say it."""
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind} {self.name}{place}"


@dataclass(frozen=True, slots=True)
class Release:
    """A release as it says of itself."""

    name: str
    namespace: str
    revision: int
    status: str
    objects: tuple[Mapping[str, Any], ...]


def objects_of(manifest: str, where: str) -> tuple[Mapping[str, Any], ...]:
    """The objects that `helm get manifest` prints.

    Raises:
        ManifestError: it is not YAML of objects.
    """
    try:
        documents = list(yaml.load_all(manifest, _Loader))
    except yaml.YAMLError:
        # Not chained: the parser's message quotes the line, which may be of a Secret.
        raise ManifestError(f"the manifest of {where} is not YAML") from None
    found: list[Mapping[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, Mapping) or not document.get("kind"):
            raise ManifestError(f"the manifest of {where} has something in it that is no object")
        items = document.get("items") if str(document["kind"]).endswith("List") else None
        found += [item for item in items if isinstance(item, Mapping)] if items else [document]
    return tuple(found)


def reference(body: Mapping[str, Any], namespace: str) -> Reference:
    """What names an object; `namespace` is empty for kinds of the whole cluster."""
    metadata = body.get("metadata") or {}
    return Reference(
        str(body.get("apiVersion") or ""),
        str(body.get("kind") or ""),
        namespace,
        str(metadata.get("name") or ""),
    )


def findings(
    release: Release,
    wanted: Mapping[Reference, Mapping[str, Any]],
    live: Mapping[Reference, Mapping[str, Any]],
    strays: Sequence[Reference] = (),
) -> Iterator[Finding]:
    """How the objects of a release differ."""
    remedy = (
        f"`helm get manifest {release.name} -n {release.namespace} | kubectl apply --server-side "
        f"--force-conflicts -n {release.namespace} -f -` puts all objects of the release back"
    )
    where = f"{release.namespace}/{release.name}"
    for ref, body in sorted(wanted.items()):
        found = live.get(ref)
        if found is None:
            yield Finding(
                "helm.object-missing", where, ref.called, "rendered by the release", "no such object",
                up=False, do=remedy,
            )  # fmt: skip
            continue
        fields = comparing.differing(_content(body), found)
        if not fields:
            continue
        lines = tuple(field.line for field in fields)
        yield Finding(
            "helm.object-changed",
            where,
            ref.called,
            "as rendered by the release",
            lines[0] if len(lines) == 1 else f"{len(lines)} fields differ",
            by=who(found, [field.path for field in fields]),
            up=False,
            do=remedy,
            details=() if len(lines) == 1 else _few(lines),
        )
    for ref in sorted(strays):
        yield Finding(
            "helm.object-extra",
            where,
            ref.called,
            "not in the release",
            "there, with the release's mark",
            up=False,
        )


def _content(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without what Helm reads for itself and what names the object."""
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k != "namespace"}
    notes = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not str(key).startswith((_HOOK, _KEEP))
    }
    return {**body, "metadata": {**metadata, "annotations": notes}}


def _few(lines: tuple[str, ...]) -> tuple[str, ...]:
    if len(lines) <= _MOST_LINES:
        return lines
    return (*lines[:_MOST_LINES], f"… and {len(lines) - _MOST_LINES} more")
