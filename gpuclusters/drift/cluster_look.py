"""Looks at objects of any kind in a cluster, and at what Helm keeps of its releases. Changes nothing."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.core.ports import ObjectKind
from gpuclusters.drift import helm
from gpuclusters.drift.helm import Reference, Release
from gpuclusters.kube.objects import KubernetesObjects

_AT_ONCE = 8
_MOST_BYTES = 64 * 1024 * 1024
"""Of a manifest that Helm has packed: far more than a Secret of a MiB can hold in good faith."""
_SECRETS = "/api/v1/namespaces/{}/secrets"
_DEPLOYED = "deployed"


class ClusterLook(KubernetesObjects):
    """The objects of a cluster, whatever their kind."""

    def __init__(self, kubeconfig: str) -> None:
        super().__init__(kubeconfig)
        self._kinds: dict[str, Mapping[str, ObjectKind]] = {}

    def object(
        self, api_version: str, kind: str, namespace: str, name: str
    ) -> dict[str, Any] | None:
        """An object; None if it or its kind is not there."""
        found = self.kinds(api_version).get(kind)
        return None if found is None else self.get(found, name, namespace)

    def kinds(self, api_version: str) -> Mapping[str, ObjectKind]:
        """The kinds that the server knows of a version, by name; none if it does not know the version."""
        if api_version not in self._kinds:
            group, _, version = api_version.rpartition("/")
            root = f"/apis/{api_version}" if group else f"/api/{api_version}"
            answer = self._or_none("GET", root, f"list the kinds of {api_version}") or {}
            self._kinds[api_version] = {
                str(entry["kind"]): ObjectKind(
                    group,
                    version,
                    str(entry["name"]),
                    str(entry["kind"]),
                    bool(entry["namespaced"]),
                )
                for entry in answer.get("resources") or ()
                if "/" not in str(entry.get("name"))
            }
        return self._kinds[api_version]

    def release(self, name: str, namespace: str) -> Release | None:
        """The release as Helm keeps it: its newest deployed revision, else its newest; None without one."""
        tried = f"read the Helm release {namespace}/{name}"
        query = [("labelSelector", f"owner=helm,name={name}")]
        answer = self._answer("GET", _SECRETS.format(namespace), tried, query=query)
        kept = sorted(answer.get("items") or (), key=_revision)
        if not kept:
            return None
        deployed = [one for one in kept if _labels(one).get("status") == _DEPLOYED]
        document = self._unpacked((deployed or kept)[-1], tried)
        try:
            objects = helm.objects_of(str(document.get("manifest") or ""), f"{namespace}/{name}")
        except helm.ManifestError as error:
            raise InvalidAnswerError(
                self.target, tried, str(error), "install the release anew"
            ) from error
        return Release(
            name,
            namespace,
            int(document.get("version") or 0),
            str(_labels(kept[-1]).get("status") or "unknown"),
            objects,
        )

    def of_release(
        self, release: Release
    ) -> tuple[
        dict[Reference, Mapping[str, Any]], dict[Reference, Mapping[str, Any]], list[Reference]
    ]:
        """The objects of a release: as rendered, those that are there, and those that say they are of it."""
        wanted: dict[Reference, Mapping[str, Any]] = {}
        places: dict[tuple[str, str, str], ObjectKind] = {}
        for body in release.objects:
            version = str(body.get("apiVersion") or "")
            kind = self.kinds(version).get(str(body["kind"]))
            stated = str((body.get("metadata") or {}).get("namespace") or release.namespace)
            namespace = "" if kind is not None and not kind.namespaced else stated
            wanted[helm.reference(body, namespace)] = body
            if kind is not None:
                places[version, kind.kind, namespace] = kind
        live: dict[Reference, Mapping[str, Any]] = {}
        strays: list[Reference] = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            lists = pool.map(lambda at: self.list(places[at], at[2]), sorted(places))
            for (version, name, namespace), found in zip(sorted(places), lists, strict=True):
                for one in found:
                    ref = Reference(version, name, namespace, str(one["metadata"]["name"]))
                    if ref in wanted:
                        # Entries of a list do not say what they are.
                        live[ref] = {"apiVersion": version, "kind": name, **one}
                    elif _is_of(one, release):
                        strays.append(ref)
        return wanted, live, strays

    def _unpacked(self, secret: Mapping[str, Any], tried: str) -> Mapping[str, Any]:
        """What Helm packs into a Secret: JSON in gzip in base64, in the Secret's own base64."""
        try:
            packed = base64.b64decode(
                base64.b64decode(str(secret["data"]["release"])), validate=True
            )
            document = json.loads(_inflated(packed))
        except (KeyError, TypeError, ValueError, binascii.Error, OSError, EOFError, zlib.error):
            # Not chained: messages of parsers quote what they were given.
            raise InvalidAnswerError(
                self.target,
                tried,
                "it is not in the form that Helm keeps",
                "install the release anew",
            ) from None
        return document if isinstance(document, Mapping) else {}


def _inflated(packed: bytes) -> bytes:
    """The bytes, whether Helm has compressed them or not; never more than can be meant."""
    if not packed.startswith(b"\x1f\x8b"):
        return packed
    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    data = decoder.decompress(packed, _MOST_BYTES)
    if decoder.unconsumed_tail:
        raise ValueError("too large")
    return data


def _revision(secret: Mapping[str, Any]) -> int:
    text = str(_labels(secret).get("version") or "0")
    return int(text) if text.isdecimal() else 0


def _labels(secret: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = secret["metadata"].get("labels") or {}
    return found


def _is_of(body: Mapping[str, Any], release: Release) -> bool:
    notes: Mapping[str, Any] = body["metadata"].get("annotations") or {}
    owners: Sequence[Any] = body["metadata"].get("ownerReferences") or ()
    return not owners and (
        notes.get(helm.RELEASE_NAME) == release.name
        and notes.get(helm.RELEASE_NAMESPACE) == release.namespace
    )
