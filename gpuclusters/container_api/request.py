"""What a tenant may ask for: one container with GPUs, checked as far as it can be checked alone.

Folders that the VM, the NVIDIA runtime in it or the kubelet fill are no mount points. Sources: Kubernetes'
validation of `mountPath`; the CDI specs of nvidia-container-toolkit in the guest.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from gpuclusters.container_api.image import REFERENCE
from gpuclusters.tenancy.model import HUGE_PAGES, SMALL_PAGES

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


class Answer(BaseModel):
    """What the API says: camel case outside, built from the values inside."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class MountAnswer(Answer):
    """One of the tenant's volumes in a container."""

    name: Annotated[str, Field(examples=["data"])]
    path: Annotated[str, Field(examples=["/data"])]
    read_only: bool


def faults(mounts: Sequence[VolumeMount]) -> Iterator[tuple[int, str, str]]:
    """What is wrong with the mounts of one container: place in the list, field, sentence."""
    for place, mount in enumerate(mounts):
        if any(part in (".", "..") for part in mount.path.split("/")):
            yield place, "path", "must be written without . and .."
        elif closed := next((one for one in CLOSED if _within(mount.path, one)), None):
            taken = f"nothing can be mounted at {closed} or below: the system's own files are there"
            yield place, "path", taken
        for other in mounts[:place]:
            if other.name == mount.name:
                yield place, "name", f"the volume {mount.name} is named twice"
            if _within(mount.path, other.path) or _within(other.path, mount.path):
                yield place, "path", f"lies over {other.path}, where another volume is"


def pod_volumes(mounts: Iterable[MountAnswer]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`volumes` of the pod's spec and `volumeMounts` of its container."""
    volumes, inside = [], []
    for mount in mounts:
        # Read-only at both places: the machine mounts it so, and the container sees it so.
        claim = {"claimName": mount.name, "readOnly": mount.read_only}
        volumes.append({"name": mount.name, "persistentVolumeClaim": claim})
        inside.append({"name": mount.name, "mountPath": mount.path, "readOnly": mount.read_only})
    return volumes, inside


def mounts_of(spec: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[MountAnswer, ...]:
    """The mounts of claims in a pod as it stands in the cluster."""
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in spec.get("volumes") or ()
        if "persistentVolumeClaim" in volume
    }
    return tuple(
        MountAnswer(
            name=claims[one["name"]]["claimName"],
            path=one["mountPath"],
            read_only=bool(one.get("readOnly") or claims[one["name"]].get("readOnly")),
        )
        for one in container.get("volumeMounts") or ()
        if one["name"] in claims
    )


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


_LABEL_KEY = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
_NO_NUL = r"^[^\x00]*$"

Name = Annotated[str, StringConstraints(max_length=63, pattern=_NAME)]
Argument = Annotated[str, StringConstraints(max_length=8192, pattern=_NO_NUL)]
VariableName = Annotated[
    str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
]
VariableValue = Annotated[str, StringConstraints(max_length=32_768, pattern=_NO_NUL)]
LabelKey = Annotated[str, StringConstraints(max_length=63, pattern=_LABEL_KEY)]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=_LABEL_VALUE)]

GPU_COUNTS = (1, 2, 4, 8)


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 2.0 is the integer 2. `true` is no number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if isinstance(value, bool) else value


Cores = Annotated[int, Field(ge=1, le=1024), BeforeValidator(_whole)]
Memory = Annotated[int, Field(ge=1, le=16_384), BeforeValidator(_whole)]
Storage = Annotated[int, Field(ge=1, le=65_536), BeforeValidator(_whole)]
User = Annotated[int, Field(ge=1, le=2_147_483_647), BeforeValidator(_whole)]
_NO_OTHERS: dict[str, Any] = {"additionalProperties": False}
"""Names that do not fit their pattern are refused, which a schema does not say by itself."""


_EXAMPLE: dict[str, Any] = {
    "name": "training",
    "image": "registry.example.com/research/train:1.4",
    "gpus": 2,
    "command": ["python", "train.py"],
    "args": ["--epochs", "3"],
    "env": {"NCCL_DEBUG": "INFO"},
    "labels": {"project": "vision"},
}


class ContainerRequest(BaseModel):
    """One container with GPUs, in a virtual machine of its own."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        json_schema_extra={"examples": [_EXAMPLE]},
    )

    image: Annotated[
        str,
        StringConstraints(max_length=512, pattern=REFERENCE),
        Field(description="Image reference with a tag or a digest. It is pulled at every start."),
    ]
    gpus: Annotated[
        Literal[1, 2, 4, 8],
        BeforeValidator(_whole),
        Field(description="GPUs of one host, joined by NVLink; `GET /v1/tenancy` tells the sizes."),
    ]
    name: Annotated[Name | None, Field(description="For people; need not be unique.")] = None
    command: Annotated[
        tuple[Argument, ...],
        Field(max_length=64, description="Instead of the image's entry point.", strict=False),
    ] = ()
    args: Annotated[
        tuple[Argument, ...],
        Field(max_length=256, description="Instead of the image's arguments.", strict=False),
    ] = ()
    env: Annotated[
        dict[VariableName, VariableValue],
        Field(
            max_length=128,
            description="Passed as written; answers give the names only.",
            json_schema_extra=_NO_OTHERS,
        ),
    ] = Field(default_factory=dict)
    cpu: Annotated[Cores | None, Field(description="Cores; by default the tenancy's default.")] = (
        None
    )
    memory_gib: Annotated[
        Memory | None, Field(description="GiB; by default the tenancy's default.")
    ] = None
    storage_gib: Annotated[
        Storage | None, Field(description="GiB of disk that is gone with the container.")
    ] = None
    volumes: Annotated[
        tuple[VolumeMount, ...],
        Field(
            max_length=MOST_VOLUMES,
            description="Of the tenant's volumes those that the container has; each once.",
            strict=False,
        ),
    ] = ()
    user: Annotated[User, Field(description="Numeric user; nothing runs as root.")] = 1000
    labels: Annotated[
        dict[LabelKey, LabelValue],
        Field(max_length=16, description="For people and tools.", json_schema_extra=_NO_OTHERS),
    ] = Field(default_factory=dict)

    def digest(self) -> str:
        """The same for requests that mean the same, whatever their order and spacing."""
        said = self.model_dump(mode="json", by_alias=True)
        if not said["volumes"]:
            del said["volumes"]  # as before there were any: old containers keep their digest
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def resources(self, gpu_resource: str, *, huge_pages: bool = False) -> dict[str, Any]:
        """Requests and limits, which are equal, but for memory where VMs are of huge pages.

        Those are requested then; the limit of memory stays, because Kata makes the VM as large as it says.
        """
        stated = {
            "cpu": None if self.cpu is None else str(self.cpu),
            "memory": None if self.memory_gib is None else f"{self.memory_gib}Gi",
            "ephemeral-storage": None if self.storage_gib is None else f"{self.storage_gib}Gi",
            gpu_resource: str(self.gpus),
        }
        amounts = {name: amount for name, amount in stated.items() if amount is not None}
        if huge_pages and "memory" in amounts:
            amounts[HUGE_PAGES] = amounts["memory"]
            return {"requests": {**amounts, "memory": SMALL_PAGES}, "limits": amounts}
        return {"requests": amounts, "limits": dict(amounts)}
