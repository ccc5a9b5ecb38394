"""Where a container has its tenant's volumes: what a request may say, and what becomes of it in the pod.

A volume is a claim in the tenant's namespace that the operator declared. The kubelet mounts it on the machine
and Kata shares it with the VM; folders that the VM itself, the NVIDIA runtime in it, or the kubelet fills are
closed as mount points, since what is mounted there would hide the driver or the machine's own files.
Sources: Kubernetes' validation of `mountPath` (absolute, without a colon); the CDI specs that
nvidia-container-toolkit writes in the guest, which put the driver below /usr, /etc and /run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

MOST_VOLUMES = 8
CLOSED = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr",
    "/var/run",
)  # fmt: skip
"""Nothing is mounted there, nor below, nor at the root itself."""

_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_PATH = r"^(/[^/:\x00-\x1f\x7f]{1,255})+$"


class VolumeMount(BaseModel):
    """One of the tenant's volumes, somewhere in its container."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)

    name: Annotated[
        str,
        StringConstraints(max_length=63, pattern=_NAME),
        Field(description="One of `volumes` in `GET /v1/tenancy`."),
    ]
    path: Annotated[
        str,
        StringConstraints(max_length=512, pattern=_PATH),
        Field(description="Where in the container; no folder of the system.", examples=["/data"]),
    ]
    read_only: Annotated[bool | None, Field(description="By default as the volume is.")] = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume in a container, as its tenant is told."""

    name: str
    path: str
    read_only: bool


def faults(mounts: Sequence[VolumeMount]) -> Iterator[tuple[int, str, str]]:
    """What is wrong with the mounts of one container: place in the list, field, sentence."""
    for place, mount in enumerate(mounts):
        if any(part in (".", "..") for part in mount.path.split("/")):
            yield place, "path", "must be written without . and .."
        elif (closed := _closed(mount.path)) is not None:
            yield (
                place,
                "path",
                f"nothing can be mounted at {closed} or below: the system's own files are there",
            )
        for other in mounts[:place]:
            if other.name == mount.name:
                yield place, "name", f"the volume {mount.name} is named twice"
            if _within(mount.path, other.path) or _within(other.path, mount.path):
                yield place, "path", f"lies over {other.path}, where another volume is"


def pod_volumes(mounts: Iterable[Mount]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`volumes` of the pod's spec and `volumeMounts` of its container."""
    volumes, inside = [], []
    for mount in mounts:
        # Read-only at both places: the machine mounts it so, and the container sees it so.
        claim = {"claimName": mount.name, "readOnly": mount.read_only}
        volumes.append({"name": mount.name, "persistentVolumeClaim": claim})
        inside.append({"name": mount.name, "mountPath": mount.path, "readOnly": mount.read_only})
    return volumes, inside


def mounts_of(spec: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[Mount, ...]:
    """The mounts of claims in a pod as it stands in the cluster."""
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in spec.get("volumes") or ()
        if "persistentVolumeClaim" in volume
    }
    return tuple(
        Mount(
            claims[one["name"]]["claimName"],
            one["mountPath"],
            bool(one.get("readOnly") or claims[one["name"]].get("readOnly")),
        )
        for one in container.get("volumeMounts") or ()
        if one["name"] in claims
    )


def _closed(path: str) -> str | None:
    return next((folder for folder in CLOSED if _within(path, folder)), None)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
