"""What is found on a host that runs rootless Docker: two inspections, one of them as the account. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuclusters.domain.rootless_files import BOOT_UNIT, REFRESH_UNITS

LEAST_IDS = 65_536
"""Subordinate ids that an image needs: Docker's documentation of rootless mode."""
RESTRICTION = "kernel.apparmor_restrict_unprivileged_userns"
"""Ubuntu's; 1: only programs with a profile make user namespaces."""
_NONE = 2**31
_ROOTFUL = ("docker.service", "docker.socket")
_UP = ("active", "activating")


@dataclass(frozen=True, slots=True)
class Engine:
    """The account's daemon, as `docker info` describes it. All empty: it does not answer."""

    version: str = ""
    rootless: bool = False
    runtimes: frozenset[str] = frozenset()
    default_runtime: str = ""
    directories: tuple[str, ...] = ()
    """CDI directories that it sees."""
    devices: frozenset[str] = frozenset()
    """CDI devices that it sees, as `nvidia.com/gpu=all`."""
    containers: int = 0
    """How many run."""


@dataclass(frozen=True, slots=True)
class LiveRootless:
    """One host."""

    system: str = ""
    release: str = ""
    architecture: str = ""
    kernel: str = ""
    boot_id: str = ""
    cgroup: str = ""
    """`v1` or `v2`."""
    free_mib: int = _NONE
    uid: int | None = None
    """Of the account; None: there is none."""
    home: str = ""
    local: bool = True
    """Whether /etc/passwd has the account. False for OS Login, LDAP and the like."""
    subuids: tuple[tuple[int, int], ...] = ()
    """First and count of the account's ranges."""
    subgids: tuple[tuple[int, int], ...] = ()
    taken: tuple[tuple[int, int], ...] = ()
    """Ranges of everybody."""
    packages: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    digests: Mapping[str, str] = field(default_factory=dict)
    """sha256 of our files by path."""
    applied: str = ""
    """Digest of the files that took effect last."""
    passed: str = ""
    """Digest with which the host passed its gates last."""
    modules: frozenset[str] = frozenset()
    """Those of the wanted modules that are neither loaded nor part of the kernel."""
    sysctl: Mapping[str, str] = field(default_factory=dict)
    restricted: bool = False
    """Whether AppArmor lets no program make user namespaces that has no profile."""
    linger: bool = False
    manager: str = ""
    """State of user@UID.service."""
    controllers: frozenset[str] = frozenset()
    """What that unit may control."""
    rootful: frozenset[str] = frozenset()
    """Of the daemon that runs as root: units that are active or enabled, and its socket if it is there."""
    rootful_containers: tuple[str, ...] = ()
    runtime_mode: str = ""
    """Mode of NVIDIA's container runtime; empty without its configuration."""
    no_cgroups: bool = False
    refresh: str = ""
    """Whether the units that write the CDI specification are enabled: `enabled`, or what they are."""
    static_cdi: bool = False
    """Whether a specification lies in /etc/cdi, which nobody writes anew."""
    cdi: frozenset[str] = frozenset()
    """Names of all CDI devices of the host."""
    boot_unit: str = ""
    module: str = ""
    """Version of NVIDIA's module on the disk."""
    licence: str = ""
    volta: bool = False
    """Whether the machine has GPUs of the Volta generation or older."""
    gpus: tuple[str, ...] = ()
    """UUIDs, as the driver shows them."""
    smi: int = 127
    smi_said: str = ""
    ports: frozenset[int] = frozenset()
    bus: bool = False
    """Whether the account's systemd answers."""
    namespaces: str = ""
    """What `rootlesskit true` says against it; empty: nothing, or it is not installed."""
    rootlesskit: str = ""
    """Where it is."""
    nerdctl: bool = False
    user_unit: bool = False
    user_enabled: bool = False
    daemon_json: str | None = None
    engine: Engine = field(default_factory=Engine)

    @property
    def runtime_directory(self) -> str:
        """XDG_RUNTIME_DIR of the account."""
        return f"/run/user/{self.uid}"

    @property
    def uuid_names(self) -> frozenset[str]:
        """The CDI names that its GPUs must have."""
        return frozenset(f"nvidia.com/gpu={uuid}" for uuid in self.gpus)


def _lines(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    single: dict[str, str] = {}
    many: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        single[key] = value.strip()
        many.setdefault(key, []).append(value.strip())
    return single, many


def _ranges(lines: list[str]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(count)) for first, count in (line.split() for line in lines))


def _pairs(many: dict[str, list[str]], key: str) -> dict[str, str]:
    """Second word and all after it by the first."""
    return {first: rest for first, _, rest in (line.partition(" ") for line in many.get(key, ()))}


def _digests(many: dict[str, list[str]]) -> dict[str, str]:
    """sha256 by path."""
    return {path: digest for digest, _, path in (x.partition(" ") for x in many.get("file", ()))}


def _rootful(many: dict[str, list[str]]) -> frozenset[str]:
    active, enabled = _pairs(many, "active"), _pairs(many, "enabled")
    units = {u for u in _ROOTFUL if active.get(u) in _UP or enabled.get(u) == "enabled"}
    return frozenset(units | set(many.get("rootful", ())))


def _refresh(many: dict[str, list[str]]) -> str:
    enabled = _pairs(many, "enabled")
    others = [enabled.get(unit, "") for unit in REFRESH_UNITS if enabled.get(unit) != "enabled"]
    return others[0] if others else "enabled"


def parse_host(text: str) -> LiveRootless:
    """What `scripts/usernetes/host/inspect.sh` printed: `key value` lines."""
    single, many = _lines(text)
    uid = single.get("uid", "")
    settings = _pairs(many, "sysctl")
    return LiveRootless(
        system=single.get("system", ""),
        release=single.get("release", ""),
        architecture=single.get("architecture", ""),
        kernel=single.get("kernel", ""),
        boot_id=single.get("boot-id", ""),
        cgroup=single.get("cgroup", ""),
        free_mib=int(single.get("free-mib") or _NONE),
        uid=int(uid) if uid.isdecimal() else None,
        home=single.get("home", ""),
        local=single.get("local") == "yes",
        subuids=_ranges(many.get("subuid", [])),
        subgids=_ranges(many.get("subgid", [])),
        taken=_ranges(many.get("taken", [])),
        packages=_pairs(many, "package"),
        held=frozenset(many.get("held", ())),
        digests=_digests(many),
        applied=single.get("applied", ""),
        passed=single.get("passed", ""),
        modules=frozenset(many.get("module-missing", ())),
        sysctl=settings,
        restricted=settings.get(RESTRICTION) == "1",
        linger=single.get("linger") == "yes",
        manager=single.get("manager", ""),
        controllers=frozenset(single.get("controllers", "").split()),
        rootful=_rootful(many),
        rootful_containers=tuple(many.get("rootful-container", ())),
        runtime_mode=single.get("runtime-mode", ""),
        no_cgroups=single.get("no-cgroups") == "true",
        refresh=_refresh(many),
        static_cdi="static-cdi" in single,
        cdi=frozenset(many.get("cdi", ())),
        boot_unit=_pairs(many, "enabled").get(BOOT_UNIT, ""),
        module=single.get("module", ""),
        licence=single.get("licence", ""),
        volta="volta" in single,
        gpus=tuple(many.get("gpu", ())),
        smi=int(single.get("smi", "127")),
        smi_said=" ".join(many.get("smi-said", ())),
        ports=frozenset(int(word) for word in single.get("ports", "").split() if word.isdecimal()),
    )


def with_account(live: LiveRootless, text: str) -> LiveRootless:
    """The same, with what `scripts/usernetes/host/inspect-account.sh` printed."""
    single, many = _lines(text)
    encoded = single.get("daemon-json")
    return replace(
        live,
        bus=single.get("bus") == "yes",
        namespaces=" ".join(many.get("namespaces", ())),
        rootlesskit=single.get("rootlesskit", ""),
        nerdctl="nerdctl" in single,
        user_unit="user-unit" in single,
        user_enabled=single.get("user-enabled") == "enabled",
        daemon_json=None if encoded is None else base64.b64decode(encoded).decode(errors="replace"),
        digests={**live.digests, **_digests(many)},
        engine=parse_engine(single.get("docker-info", "")),
    )


def parse_engine(text: str) -> Engine:
    """What `docker info --format '{{json .}}'` printed; a daemon that does not answer is an empty one."""
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
