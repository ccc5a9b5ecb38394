"""Objects of a Helm release: what the release says it rendered, against what is there.

Pulumi looks at a release as a whole; of the objects in it nobody looks at any again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from gpuclusters.drift import comparing
from gpuclusters.drift.comparing import who
from gpuclusters.drift.finding import Finding, of_lines

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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
    version, kind = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
    return Reference(version, kind, namespace, str((body.get("metadata") or {}).get("name") or ""))


def findings(
    release: Release,
    wanted: Mapping[Reference, Mapping[str, Any]],
    live: Mapping[Reference, Mapping[str, Any]],
    strays: Sequence[Reference] = (),
) -> Iterator[Finding]:
    """How the objects of a release differ; `strays` say that they are of it, and its manifest lacks them."""
    remedy = (
        f"`helm get manifest {release.name} -n {release.namespace} | kubectl apply --server-side "
        f"--force-conflicts -n {release.namespace} -f -` puts all objects of the release back"
    )
    where = f"{release.namespace}/{release.name}"
    for ref, body in sorted(wanted.items()):
        found = live.get(ref)
        if found is None:
            declared, gone = "rendered by the release", "no such object"
            yield Finding(
                "helm.object-missing", where, ref.called, declared, gone, up=False, do=remedy
            )
        elif fields := comparing.differing(_content(body), found):
            lines, by = (
                [field.line for field in fields],
                who(found, [field.path for field in fields]),
            )
            declared = "as rendered by the release"
            yield of_lines(
                "helm.object-changed",
                where,
                ref.called,
                declared,
                lines,
                by=by,
                up=False,
                do=remedy,
            )
    for ref in sorted(strays):
        said = ("not in the release", "there, with the release's mark")
        yield Finding("helm.object-extra", where, ref.called, *said, up=False)


def _content(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without what Helm reads for itself and what names the object."""
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k != "namespace"}
    notes = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not str(key).startswith((_HOOK, _KEEP))
    }
    return {**body, "metadata": {**metadata, "annotations": notes}}
