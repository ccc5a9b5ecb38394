"""The configuration of a whole stack, read without Pulumi.

A cluster type is added by one module with its section's model and rules, and one line in `SECTIONS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.fault import HIDDEN, NOTHING, Fault, Flaw, Path, show
from gpuclusters.config.fault_kind import FaultKind
from gpuclusters.config.lab import KEY as LAB
from gpuclusters.config.lab import LabConfig
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_rules import RKE2_RULES
from gpuclusters.config.rules import CAAS_RULES, Rule, Severity
from gpuclusters.config.structure import Reading, read
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_rules import USERNETES_RULES

NAMESPACE = "gpu-clusters"
"""Prefix of all keys of this program in a stack file."""

_DEEPEST = 20
"""Levels of a document; what is deeper is a mistake or an attack."""
_TYPE = FaultKind.CLUSTER_TYPE.id
_NO_TEXT = FaultKind.KEY_IS_NO_TEXT.id


class ClusterType(StrEnum):
    """What kind of cluster a stack declares."""

    CAAS = "caas"
    RKE2 = "rke2"
    USERNETES = "usernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionKind:
    """How the section of one cluster type is read."""

    model: type[CaasConfig] | type[Rke2Config] | type[UsernetesConfig]
    rules: tuple[Rule, ...]
    lists: tuple[str, ...]
    """Keys whose items are read one by one."""
    stand_ins: Mapping[str, Any] = field(default_factory=dict)
    """Valid values of the required keys: one that is wrong does not keep the others from the rules."""


SECTIONS: Mapping[ClusterType, SectionKind] = {
    ClusterType.CAAS: SectionKind(
        model=CaasConfig,
        rules=CAAS_RULES,
        lists=("nodes", "tenants"),
        stand_ins={
            "name": "unread",
            "platform": "dgx-h100",
            "hosts": {"source": "lab"},
            "kubernetes": {"source": "lab"},
            "nodes": [],
            "partition-layout": [8],
        },
    ),
    ClusterType.RKE2: SectionKind(
        model=Rke2Config,
        rules=RKE2_RULES,
        lists=("pools",),
        stand_ins={
            "name": "unread",
            "hosts": {"source": "lab"},
            "version": "v1.35.7+rke2r1",
            "artifacts": {"source": "download", "checksum": "0" * 64},
            "servers": ["unread"],
            "operator": {"version": "v26.7.0"},
        },
    ),
    ClusterType.USERNETES: SectionKind(
        model=UsernetesConfig,
        rules=USERNETES_RULES,
        lists=("workers",),
        stand_ins={
            "name": "unread",
            "hosts": {"source": "lab"},
            "control-plane": {"host": "unread"},
            "gpus": {"product": "v100-sxm2-16gb", "count": 1},
        },
    ),
}

SECRET_KEYS = (
    *("kubeconfig", "ssh-private-key", "controller-ssh-private-key", "bmc-password"),
    "api-private-key",
    *("server-token", "agent-token", "registry-credentials", "tenant-registry-credentials"),
)
"""Secrets of all cluster types; which of them a stack needs is told by its section."""
TOP_LEVEL_KEYS = ("cluster-type", *SECTIONS, LAB, *SECRET_KEYS)


@dataclass(frozen=True, slots=True)
class StackConfig:
    """What a stack file says, as far as the chosen cluster type needs it."""

    cluster_type: ClusterType
    section: ClusterConfig
    warnings: tuple[Fault, ...] = ()
    """What works but will hurt."""
    lab: LabConfig = field(default_factory=LabConfig)
    """What the lab is made of, where the cluster is in one."""

    @property
    def caas(self) -> CaasConfig:
        """The section, for what is about `caas` clusters alone."""
        if not isinstance(self.section, CaasConfig):
            raise TypeError(f"the cluster type is {self.cluster_type.value}")
        return self.section

    @property
    def rke2(self) -> Rke2Config:
        """The section, for what is about `rke2` clusters alone."""
        if not isinstance(self.section, Rke2Config):
            raise TypeError(f"the cluster type is {self.cluster_type.value}")
        return self.section

    @property
    def usernetes(self) -> UsernetesConfig:
        """The section, for what is about `usernetes` clusters alone."""
        if not isinstance(self.section, UsernetesConfig):
            raise TypeError(f"the cluster type is {self.cluster_type.value}")
        return self.section


def parse(document: Mapping[str, Any], *, file: str) -> StackConfig | list[Fault]:
    """Read a configuration: either it is right, or everything that is wrong with it.

    Args:
        document: the keys of this program without their namespace, as parsed from YAML or JSON.
            Secret values are not part of it.
        file: name of the file it comes from, for messages.
    """
    faults = list(_top_level(document, file))
    lab = _lab(document.get(LAB), file)
    if isinstance(lab, list):
        faults += lab
    key = document.get("cluster-type")
    key = key if isinstance(key, str) else ""
    if key in list(SECTIONS):
        faults += _unreadable(document.get(key), file, (key,))
    if faults or isinstance(lab, list):
        return _in_order(faults, document)
    kind = SECTIONS[ClusterType(key)]
    section = document[key]
    reading: Reading[Any] = read(kind.model, section, kind.lists, kind.stand_ins)
    errors = [Fault(file, (key, *flaw.path), *_said(flaw)) for flaw in reading.flaws]
    errors += _judge(kind, reading, Severity.ERROR, file, key)
    if errors or reading.model is None:
        return _in_order(errors, document)
    warnings = _in_order(_judge(kind, reading, Severity.WARNING, file, key), document)
    return StackConfig(ClusterType(key), reading.model, tuple(warnings), lab)


def _lab(section: Any, file: str) -> LabConfig | list[Fault]:
    """The section of the lab, or what is wrong with it; what is not written has defaults."""
    if section is None or section == {}:
        return LabConfig()
    if not isinstance(section, Mapping):
        return [_no_mapping(section, LAB, file)]
    if unreadable := list(_unreadable(section, file, (LAB,))):
        return unreadable
    reading = read(LabConfig, section, (), {})
    faults = [Fault(file, (LAB, *flaw.path), *_said(flaw)) for flaw in reading.flaws]
    return faults or reading.model or LabConfig()


def _said(flaw: Flaw) -> tuple[str, str, str, str]:
    return flaw.wrong, flaw.got, flaw.instead, flaw.id


def _in_order(faults: Iterable[Fault], document: Mapping[str, Any]) -> list[Fault]:
    """Each once, in the order of the document; what is missing from it comes last where it belongs."""

    def position(fault: Fault) -> list[int]:
        places: list[int] = []
        current: Any = document
        for part in fault.path:
            here = list(current) if isinstance(current, Mapping) else []
            if part in here:
                places.append(here.index(part))
                current = current[part]
            elif isinstance(current, list | tuple) and isinstance(part, int):
                places.append(part)
                current = current[part] if part < len(current) else None
            else:
                places.append(len(here))
                current = None
        return places

    return sorted(dict.fromkeys(faults), key=position)


def _judge(
    kind: SectionKind, reading: Reading[Any], severity: Severity, file: str, key: str
) -> Iterator[Fault]:
    model = reading.model
    if model is None:
        return
    names = {info.alias: name for name, info in kind.model.model_fields.items()}
    broken = frozenset(names.get(alias, alias) for alias in reading.broken)
    cut = frozenset(names.get(alias, alias) for alias in reading.cut)
    for rule in kind.rules:
        if rule.severity is severity and rule.can_run(broken, cut):
            for flaw in rule.check(model):
                path = (key, *reading.original(flaw.path))
                yield Fault(file, path, flaw.wrong, flaw.got, flaw.instead, rule.id)


def _top_level(document: Mapping[str, Any], file: str) -> Iterator[Fault]:
    types = " or ".join(SECTIONS)
    chosen = document.get("cluster-type")
    if chosen is None:
        instead = f"write {NAMESPACE}:cluster-type: {types}"
        yield Fault(file, ("cluster-type",), "is missing", NOTHING, instead, _TYPE)
    elif not isinstance(chosen, str) or chosen not in list(SECTIONS):
        wrong = "is not a cluster type"
        yield Fault(file, ("cluster-type",), wrong, show(chosen), f"write {types}", _TYPE)
    else:
        yield from _section_is_there(document, chosen, file)
    for key in list(document):
        if key not in TOP_LEVEL_KEYS:
            yield _unknown_top_level(key, file)


def _section_is_there(document: Mapping[str, Any], chosen: str, file: str) -> Iterator[Fault]:
    section = document.get(chosen)
    if section is None or section == {}:  # the latter is the project's default
        instead = f"write {NAMESPACE}:{chosen} with the cluster beneath it"
        yield Fault(file, (chosen,), "is missing", NOTHING, instead, FaultKind.MISSING.id)
    elif not isinstance(section, Mapping):
        yield _no_mapping(section, chosen, file)


def _no_mapping(section: Any, key: str, file: str) -> Fault:
    got = show(section, (key,))
    instead = "write keys and values beneath it"
    return Fault(file, (key,), "is not a mapping", got, instead, FaultKind.WRONG_TYPE.id)


def _unknown_top_level(key: object, file: str) -> Fault:
    if not isinstance(key, str):
        return Fault(file, (), "has a key that is no text", show(key), "remove it", _NO_TEXT)
    near = difflib.get_close_matches(key, TOP_LEVEL_KEYS, n=1)
    known = ", ".join(f"{NAMESPACE}:{one}" for one in TOP_LEVEL_KEYS)
    instead = f"did you mean {NAMESPACE}:{near[0]}?" if near else f"the keys here are {known}"
    got = f"the key {show(key)}"
    return Fault(file, (key,), "is not a known key", got, instead, FaultKind.UNKNOWN_KEY.id)


def _unreadable(document: Any, file: str, path: Path) -> Iterator[Fault]:
    """Keys that are no text, encrypted values, and documents without a bottom."""
    if len(path) > _DEEPEST:
        got = f"{len(path)} levels"
        instead = "see docs/configuration.md"
        yield Fault(file, path[:4], "is nested too deeply", got, instead, FaultKind.TOO_DEEP.id)
    elif isinstance(document, Mapping):
        if set(document) == {"secure"}:
            yield Fault(
                file,
                path,
                "is encrypted, and the description of a cluster holds no secrets",
                HIDDEN,
                f"set it without --secret; the secrets are {', '.join(SECRET_KEYS)}",
                FaultKind.ENCRYPTED_SECTION.id,
            )
            return
        for key, value in document.items():
            if isinstance(key, str):
                yield from _unreadable(value, file, (*path, key))
            else:
                instead = f'put it in quotes: "{key}"' if isinstance(key, int) else "write text"
                yield Fault(file, path, "has a key that is no text", show(key), instead, _NO_TEXT)
    elif isinstance(document, list | tuple):
        for position, value in enumerate(document):
            yield from _unreadable(value, file, (*path, position))


def plain_secret(file: str, key: str) -> Fault:
    """A secret that stands in the file for everybody to read."""
    return Fault(
        file,
        (key,),
        "is not encrypted",
        HIDDEN,
        f"replace what was in the file, and run `pulumi config set --secret {key}`",
        FaultKind.PLAIN_SECRET.id,
    )
