"""An image as one file that `ctr images import` reads: an OCI image layout in a tar, no registry needed."""

import contextlib
import hashlib
import io
import json
import secrets
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.images import layer
from lab.images.layer import Entry, KeptLayer
from lab.tools.catalogue import host_platform

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_NAME = "io.containerd.image.name"
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a container of the image does when its pod says nothing else."""

    entry: tuple[str, ...] = ()
    """What runs always; a pod's arguments come behind it."""
    command: tuple[str, ...] = ()
    """What runs behind the entry when a pod gives no arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    folder: str = "/"


@dataclass(frozen=True, slots=True)
class Image:
    """A finished image: its name, its digest (`sha256:…`) and its archive."""

    name: str
    digest: str
    archive: Path


def build(
    name: str, layers: Sequence[Iterable[Entry] | KeptLayer], settings: Settings, folder: Path
) -> Image:
    """Write the image into `folder`, in a file named after digest and name; there already: left as it is.

    `name` is the full name, with the registry, as containerd keeps it. Raises `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _temporary(folder) as work:
        blobs: dict[str, Path | bytes] = {}
        descriptors = []
        for number, content in enumerate(layers):
            if isinstance(content, KeptLayer):
                digest, file = content.digest, content.file
            else:
                file = work / f"layer-{number}"
                with file.open("wb") as out:
                    digest = layer.write(content, out)
            blobs[digest] = file
            descriptors.append(_descriptor(_LAYER, digest, file.stat().st_size))
        config = _json(_configuration(settings, [d["digest"] for d in descriptors]))
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _put(blobs, _CONFIG, config),
                "layers": descriptors,
            }
        )
        described = _put(blobs, _MANIFEST, manifest)
        image = Image(name, described["digest"], file_of(folder, name, described["digest"]))
        if not image.archive.exists():
            _write(work / "image.tar", name, described, blobs)
            (work / "image.tar").replace(image.archive)
    return image


def file_of(folder: Path, name: str, digest: str) -> Path:
    """Where the archive lies: one content may have several names, and an archive says one."""
    named = hashlib.sha256(name.encode()).hexdigest()[:8]
    return folder / f"{digest.removeprefix('sha256:')}-{named}.tar"


def name_of(image: Path) -> str:
    """The name that an archive says. Raises `OSError`."""
    with tarfile.open(image) as tar:
        index = tar.extractfile("index.json")
        described = json.loads(index.read())["manifests"][0] if index else {}
    return str(described["annotations"][_NAME])


def _configuration(settings: Settings, digests: Sequence[str]) -> dict[str, Any]:
    return {
        "architecture": host_platform().arch,
        "os": "linux",
        "created": _EPOCH,
        "config": {
            **({"Entrypoint": list(settings.entry)} if settings.entry else {}),
            "Cmd": list(settings.command),
            "Env": [f"{name}={value}" for name, value in sorted(settings.environment.items())],
            "User": settings.user,
            "WorkingDir": settings.folder,
        },
        "rootfs": {"type": "layers", "diff_ids": list(digests)},
        "history": [{"created": _EPOCH} for _ in digests],
    }


def _write(
    file: Path, name: str, manifest: Mapping[str, Any], blobs: Mapping[str, Path | bytes]
) -> None:
    named = {
        **manifest,
        "annotations": {
            _NAME: name,
            "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1],
        },
    }
    contents: dict[str, Path | bytes] = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [named]}),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in sorted(contents.items()):
            info = tarfile.TarInfo(path)
            info.mode = 0o644
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.size = content.stat().st_size
                with content.open("rb") as source:
                    tar.addfile(info, source)


def _put(blobs: dict[str, Path | bytes], kind: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return _descriptor(kind, digest, len(content))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    # Beside what it becomes: a rename is only whole within one file system.
    work = folder / f".tmp-{secrets.token_hex(4)}"
    work.mkdir()
    try:
        yield work
    finally:
        for left in work.iterdir():
            left.unlink()
        work.rmdir()
