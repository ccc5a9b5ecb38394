"""Volumes of a pod as folders of the lab: what a kubelet would mount, written as files."""

import base64
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lab.cluster import CONFIG_MAP, SECRET
from lab.files import write_atomic
from lab.kubelet.fields import FieldError, field
from lab.kubelet.folder import NodeFolder
from lab.kubelet.kube import Kube

Pod = Mapping[str, Any]
Files = dict[str, bytes]

LONGEST_TOKEN_SECONDS = 24 * 3600
"""Programs that take a token from a kubeconfig read it once: theirs lives for a day at least."""
_RENEW_AT = 0.5


class VolumeError(Exception):
    """A volume cannot be made now; one sentence."""


@dataclass(slots=True)
class _Token:
    text: str
    renew: datetime


class Volumes:
    def __init__(self, kube: Kube, node: NodeFolder, pod: Pod, ca: Path) -> None:
        self._kube = kube
        self._node = node
        self._pod = pod
        self._ca = ca
        self._tokens: dict[tuple[str, str], _Token] = {}
        self.folder = node.pod(pod["metadata"]["uid"])

    def path(self, name: str) -> Path:
        """Where a volume's content lies.

        Raises:
            VolumeError: the pod has no such volume.
        """
        for volume in self._pod["spec"].get("volumes") or ():
            if volume["name"] == name:
                if "hostPath" in volume:
                    return self._node.host(volume["hostPath"]["path"])
                return self.folder / "volumes" / name
        raise VolumeError(f"the pod has no volume {name}")

    async def write(self) -> None:
        """Write all volumes as they should be now; called again and again, it follows changes.

        Raises:
            VolumeError: something that a volume names is not there, or a kind of volume is unknown.
            ClusterError: the API server could not be asked.
        """
        for volume in self._pod["spec"].get("volumes") or ():
            path = self.path(volume["name"])
            path.mkdir(parents=True, exist_ok=True)
            if "hostPath" in volume or "emptyDir" in volume:
                continue
            files = await self._files(volume)
            for name, content in files.items():
                target = path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(target, content, mode=0o600)
            for found in path.iterdir():
                if found.is_file() and found.name not in files:
                    found.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _files(self, volume: Mapping[str, Any]) -> Files:
        match volume:
            case {"configMap": source}:
                return await self._stored(CONFIG_MAP, source, source.get("name", ""))
            case {"secret": source}:
                return await self._stored(SECRET, source, source.get("secretName", ""))
            case {"downwardAPI": source}:
                return self._downward(source)
            case {"projected": source}:
                files: Files = {}
                for part in source.get("sources") or ():
                    files |= await self._projected(part)
                return files
        kinds = ", ".join(sorted(key for key in volume if key != "name"))
        raise VolumeError(f"volume {volume['name']}: the stand-in has no volumes of kind {kinds}")

    async def _projected(self, part: Mapping[str, Any]) -> Files:
        match part:
            case {"serviceAccountToken": source}:
                return {source["path"]: (await self._token(source)).encode()}
            case {"configMap": source}:
                return await self._stored(CONFIG_MAP, source, source.get("name", ""))
            case {"secret": source}:
                return await self._stored(SECRET, source, source.get("name", ""))
            case {"downwardAPI": source}:
                return self._downward(source)
        raise VolumeError(f"the stand-in cannot project {', '.join(sorted(part))}")

    async def _stored(self, kind: Any, source: Mapping[str, Any], name: str) -> Files:
        body = await self._kube.cluster.get(kind, name, self._pod["metadata"]["namespace"])
        if body is None:
            if source.get("optional"):
                return {}
            raise VolumeError(f'{kind.plural.removesuffix("s")} "{name}" not found')
        content = contents(body)
        items: Sequence[Mapping[str, str]] | None = source.get("items")
        if items is None:
            return content
        files: Files = {}
        for item in items:
            if item["key"] in content:
                files[item["path"]] = content[item["key"]]
            elif not source.get("optional"):
                raise VolumeError(f'{kind.kind} "{name}" has no key {item["key"]}')
        return files

    def _downward(self, source: Mapping[str, Any]) -> Files:
        try:
            return {
                item["path"]: field(self._pod, item["fieldRef"]["fieldPath"]).encode()
                for item in source.get("items") or ()
            }
        except (KeyError, FieldError) as error:
            raise VolumeError(f"the stand-in cannot tell the pod {error}") from error

    async def _token(self, source: Mapping[str, Any]) -> str:
        audience = source.get("audience", "")
        key = (source["path"], audience)
        known = self._tokens.get(key)
        now = datetime.now(UTC)
        if known is None or now >= known.renew:
            seconds = max(int(source.get("expirationSeconds", 3600)), LONGEST_TOKEN_SECONDS)
            text, expires = await self._kube.token(
                self._pod, [audience] if audience else [], seconds
            )
            life: timedelta = expires - now
            known = self._tokens[key] = _Token(text, now + life * _RENEW_AT)
        return known.text


def contents(body: Mapping[str, Any]) -> Files:
    """Key to content of a ConfigMap or Secret."""
    if body["kind"] == SECRET.kind:
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
    plain = {key: value.encode() for key, value in (body.get("data") or {}).items()}
    binary = body.get("binaryData") or {}
    return plain | {key: base64.b64decode(value) for key, value in binary.items()}
