"""A host that runs rootless Docker with GPUs for one account: what it must be, and what is found on it.

Sources: Docker's documentation of rootless mode (packages, ids, delegation), NVIDIA's container toolkit (four
packages of one version, `nvidia-cdi-refresh` since 1.18), moby (`docker info` shows CDI devices since 28.2).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpuclusters.compat.usernetes_versions import table
from gpuclusters.compat.versions import release
from gpuclusters.core.facts import Facts, Yes
from gpuclusters.core.model import Strict, matches
from gpuclusters.host.model import HostConnection

DEFAULT_PROBE_IMAGE = "docker.io/library/ubuntu:24.04"
"""What `nvidia-smi` is tried in: an image without anything of NVIDIA's, so that all of it is injected."""

_VERSION = r"[0-9]+\.[0-9]+\.[0-9]+"


class RootlessHostInputs(Strict):
    connection: HostConnection
    account: Annotated[
        str, matches(r"[a-z_][a-z0-9_-]{0,31}", "write a Linux login name, like ubuntu")
    ]
    """Whom the daemon and all containers belong to; never root."""
    gpus: Annotated[int, Field(ge=1, le=64)]
    docker: Annotated[str, matches(_VERSION, "write all three numbers, like 29.7.2")]
    container_toolkit: Annotated[str, matches(_VERSION, "write all three numbers, like 1.20.0")]
    sudo: bool = True
    """False: an administrator prepares the host; what needs root is said and not done."""
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = ()
    """TCP ports that nodes publish on the host: nobody else may listen there."""
    probe_image: Annotated[str, Field(min_length=1, max_length=255)] = DEFAULT_PROBE_IMAGE
    remove_data: bool = False
    """Whether a removal deletes the account's images, volumes and containers too."""

    @model_validator(mode="after")
    def _fits_together(self) -> RootlessHostInputs:
        if self.account == "root":
            raise ValueError("account: rootless Docker belongs to an ordinary account, like ubuntu")
        if not self.sudo and self.connection.user != self.account:
            raise ValueError(
                f"account: without sudo only {self.connection.user} can be prepared, who logs in; write "
                "this name, or connection.user: the account"
            )
        limits = table().limits
        if release(self.docker) < release(limits.docker_cdi):
            raise ValueError(
                f"docker: {self.docker} does not show which CDI devices it sees; {limits.docker_cdi} "
                "is the first that does"
            )
        if release(self.container_toolkit) < release(limits.toolkit_cdi):
            raise ValueError(
                f"container_toolkit: {self.container_toolkit} does not keep the CDI specification "
                f"up to date by itself; {limits.toolkit_cdi} is the first that does"
            )
        return self

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}/rootless"

    @property
    def digest(self) -> str:
        """Of all that decides how the host is prepared."""
        known = [self.account, self.gpus, self.docker, self.container_toolkit, self.sudo]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def stamp(self, live: LiveRootless) -> str:
        """Of the inputs, boot and GPUs with which a container was last seen to have all of them."""
        return f"{self.digest} {live.boot_id} {' '.join(live.gpu)}"


class Engine(BaseModel):
    """The account's daemon, as `docker info` describes it. All empty: it does not answer."""

    model_config = ConfigDict(frozen=True)

    version: str = ""
    rootless: bool = False
    runtimes: frozenset[str] = frozenset()
    default_runtime: str = ""
    directories: tuple[str, ...] = ()
    devices: frozenset[str] = frozenset()
    containers: int = 0


def parse_engine(text: Any) -> Any:
    """What `docker info --format '{{json .}}'` printed; a daemon that does not answer is an empty one."""
    if not isinstance(text, str):
        return text
    try:
        said: Any = json.loads(text)
    except ValueError:
        return Engine()
    if not isinstance(said, dict) or not said.get("ServerVersion"):
        return Engine()
    devices = said.get("DiscoveredDevices") or ()
    return Engine(
        version=str(said["ServerVersion"]),
        rootless=any("name=rootless" in one for one in said.get("SecurityOptions") or ()),
        runtimes=frozenset(said.get("Runtimes") or ()),
        default_runtime=str(said.get("DefaultRuntime", "")),
        directories=tuple(said.get("CDISpecDirs") or ()),
        devices=frozenset(one["ID"] for one in devices if one.get("Source") == "cdi"),
        containers=int(said.get("ContainersRunning") or 0),
    )


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


Ranges = tuple[tuple[int, int], ...]
"""First and count of ranges of subordinate ids."""


class LiveRootless(Facts):
    """One host: what `inspect.sh` and, as the account, `inspect-account.sh` print."""

    system: str = ""
    release: str = ""
    architecture: str = ""
    kernel: str = ""
    boot_id: str = ""
    cgroup: str = ""
    free_mib: int | None = None
    uid: int | None = None
    """Of the account; None: there is none."""
    home: str = ""
    local: Yes = False
    """Whether /etc/passwd has the account. False for OS Login, LDAP and the like."""
    subuid: Ranges = ()
    subgid: Ranges = ()
    taken: Ranges = ()
    package: Mapping[str, str] = {}
    held: frozenset[str] = frozenset()
    file: Mapping[str, str] = {}
    """sha256 of our files by path."""
    applied: str = ""
    """Digest of the files that took effect last."""
    passed: str = ""
    """Stamp with which a container last had all GPUs; see `RootlessHostInputs.stamp`."""
    module_missing: frozenset[str] = frozenset()
    """Those of the wanted modules that are neither loaded nor part of the kernel."""
    sysctl: Mapping[str, str] = {}
    linger: Yes = False
    manager: str = ""
    """State of user@UID.service."""
    controllers: frozenset[str] = frozenset()
    """What that unit may control."""
    active: Mapping[str, str] = {}
    enabled: Mapping[str, str] = {}
    """systemd's states by unit."""
    rootful: frozenset[str] = frozenset()
    """The socket of a daemon that runs as root."""
    rootful_container: tuple[str, ...] = ()
    runtime_mode: str = ""
    """Mode of NVIDIA's container runtime; empty without its configuration."""
    no_cgroups: Yes = False
    static_cdi: Yes = False
    """Whether a specification lies in /etc/cdi, which nobody writes anew."""
    cdi: frozenset[str] = frozenset()
    """Names of all CDI devices of the host."""
    module: str = ""
    """Version of NVIDIA's module on the disk."""
    licence: str = ""
    pci_gpu: frozenset[str] = frozenset()
    gpu: tuple[str, ...] = ()
    """UUIDs, as the driver shows them."""
    smi: int = 127
    smi_said: str = ""
    ports: frozenset[int] = frozenset()
    bus: Yes = False
    namespaces: str = ""
    """What `rootlesskit true` says against it; empty: nothing, or it is not installed."""
    rootlesskit: str = ""
    nerdctl: Yes = False
    user_unit: Yes = False
    user_enabled: Yes = False
    daemon_json: Annotated[str, BeforeValidator(_decoded)] | None = None
    docker_info: Annotated[Engine, BeforeValidator(parse_engine)] = Engine()

    @property
    def runtime_directory(self) -> str:
        """XDG_RUNTIME_DIR of the account."""
        return f"/run/user/{self.uid}"

    @property
    def wanted_devices(self) -> frozenset[str]:
        """The CDI names that its GPUs must have."""
        return frozenset(f"nvidia.com/gpu={name}" for name in (*self.gpu, "all"))
