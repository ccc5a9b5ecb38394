"""The configuration of a whole stack, read without Pulumi.

A cluster type is added by one module with its section's model and rules, and one line in `SECTIONS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import KEY as LAB
from gpuclusters.config.cluster import SECRET_KEYS, ClusterConfig, LabConfig
from gpuclusters.config.fault import HIDDEN, NOTHING, finding, show
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_rules import RKE2_RULES
from gpuclusters.config.rules import CAAS_RULES, Rule
from gpuclusters.config.structure import Reading, read
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_rules import USERNETES_RULES
from gpuclusters.core.finding import Finding, Level, Path

NAMESPACE = "gpu-clusters"
"""Prefix of all keys of this program in a stack file."""

_DEEPEST = 20
"""Levels of a document; what is deeper is a mistake or an attack."""
_TYPE = "config.unknown-cluster-type"
_NO_TEXT = "config.key-is-no-text"


class ClusterType(StrEnum):
    """What kind of cluster a stack declares."""

    CAAS = "caas"
    RKE2 = "rke2"
    USERNETES = "usernetes"


class SectionKind(NamedTuple):
    """How the section of one cluster type is read."""

    model: type[CaasConfig] | type[Rke2Config] | type[UsernetesConfig]
    rules: tuple[Rule, ...]


SECTIONS: Mapping[ClusterType, SectionKind] = {
    ClusterType.CAAS: SectionKind(CaasConfig, CAAS_RULES),
    ClusterType.RKE2: SectionKind(Rke2Config, RKE2_RULES),
    ClusterType.USERNETES: SectionKind(UsernetesConfig, USERNETES_RULES),
}

WITHOUT_SECRETS = "GPU_CLUSTERS_PREVIEW_WITHOUT_SECRETS"
"""Environment variable: a preview takes secrets that are not set as unknown, and warns."""
TOP_LEVEL_KEYS = ("cluster-type", *SECTIONS, LAB, *SECRET_KEYS)


@dataclass(frozen=True, slots=True)
class StackConfig:
    """What a stack file says, as far as the chosen cluster type needs it."""

    cluster_type: ClusterType
    section: ClusterConfig
    warnings: tuple[Finding, ...] = ()
    """What works but will hurt."""
    lab: LabConfig = field(default_factory=LabConfig)
    """What the lab is made of, where the cluster is in one."""


def parse(document: Mapping[str, Any]) -> StackConfig | list[Finding]:
    """Read the keys of this program, without namespace and secrets: right, or everything that is wrong."""
    wrong = list(_top_level(document))
    lab = _lab(document.get(LAB))
    if isinstance(lab, list):
        wrong += lab
    key = document.get("cluster-type")
    key = key if isinstance(key, str) else ""
    if key in list(SECTIONS):
        wrong += _unreadable(document.get(key), (key,))
    if wrong or isinstance(lab, list):
        return _in_order(wrong, document)
    kind = SECTIONS[ClusterType(key)]
    reading: Reading[Any] = read(kind.model, document[key])
    found = [*reading.flaws, *(one for rule in kind.rules for one in reading.judge(rule))]
    found = [replace(one, path=(key, *one.path)) for one in found]
    if wrong := [one for one in found if one.level is not Level.WARN]:
        return _in_order(wrong, document)
    return StackConfig(ClusterType(key), reading.model, tuple(_in_order(found, document)), lab)


def _lab(section: Any) -> LabConfig | list[Finding]:
    """The section of the lab, or what is wrong with it; what is not written has defaults."""
    if section is None or section == {}:
        return LabConfig()
    if not isinstance(section, Mapping):
        return [_no_mapping(section, LAB)]
    if unreadable := list(_unreadable(section, (LAB,))):
        return unreadable
    reading = read(LabConfig, section)
    return [replace(one, path=(LAB, *one.path)) for one in reading.flaws] or reading.model


def _in_order(found: Iterable[Finding], document: Mapping[str, Any]) -> list[Finding]:
    """Each once, in the order of the document; what is missing from it comes last where it belongs."""

    def position(one: Finding) -> list[int]:
        places: list[int] = []
        current: Any = document
        for part in one.path:
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

    return sorted(dict.fromkeys(found), key=position)


def _top_level(document: Mapping[str, Any]) -> Iterator[Finding]:
    types = " or ".join(SECTIONS)
    chosen = document.get("cluster-type")
    if chosen is None:
        instead = f"write {NAMESPACE}:cluster-type: {types}"
        yield finding(("cluster-type",), "is missing", NOTHING, instead, _TYPE)
    elif not isinstance(chosen, str) or chosen not in list(SECTIONS):
        wrong = "is not a cluster type"
        yield finding(("cluster-type",), wrong, show(chosen), f"write {types}", _TYPE)
    else:
        yield from _section_is_there(document, chosen)
    for key in list(document):
        if key not in TOP_LEVEL_KEYS:
            yield _unknown_top_level(key)


def _section_is_there(document: Mapping[str, Any], chosen: str) -> Iterator[Finding]:
    section = document.get(chosen)
    if section is None or section == {}:  # the latter is the project's default
        instead = f"write {NAMESPACE}:{chosen} with the cluster beneath it"
        yield finding((chosen,), "is missing", NOTHING, instead, "config.missing-key")
    elif not isinstance(section, Mapping):
        yield _no_mapping(section, chosen)


def _no_mapping(section: Any, key: str) -> Finding:
    got = show(section, (key,))
    instead = "write keys and values beneath it"
    return finding((key,), "is not a mapping", got, instead, "config.wrong-type")


def _unknown_top_level(key: object) -> Finding:
    if not isinstance(key, str):
        return finding((), "has a key that is no text", show(key), "remove it", _NO_TEXT)
    near = difflib.get_close_matches(key, TOP_LEVEL_KEYS, n=1)
    known = ", ".join(f"{NAMESPACE}:{one}" for one in TOP_LEVEL_KEYS)
    instead = f"did you mean {NAMESPACE}:{near[0]}?" if near else f"the keys here are {known}"
    got = f"the key {show(key)}"
    return finding((key,), "is not a known key", got, instead, "config.unknown-key")


def _unreadable(document: Any, path: Path) -> Iterator[Finding]:
    """Keys that are no text, encrypted values, and documents without a bottom."""
    if len(path) > _DEEPEST:
        got = f"{len(path)} levels"
        instead = "see docs/configuration.md"
        yield finding(path[:4], "is nested too deeply", got, instead, "config.nested-too-deeply")
    elif isinstance(document, Mapping):
        if set(document) == {"secure"}:
            wrong = "is encrypted, and the description of a cluster holds no secrets"
            instead = f"set it without --secret; the secrets are {', '.join(SECRET_KEYS)}"
            yield finding(path, wrong, HIDDEN, instead, "config.encrypted-section")
            return
        for key, value in document.items():
            if isinstance(key, str):
                yield from _unreadable(value, (*path, key))
            else:
                instead = f'put it in quotes: "{key}"' if isinstance(key, int) else "write text"
                yield finding(path, "has a key that is no text", show(key), instead, _NO_TEXT)
    elif isinstance(document, list | tuple):
        for position, value in enumerate(document):
            yield from _unreadable(value, (*path, position))


def plain_secret(key: str) -> Finding:
    """A secret that stands in the file for everybody to read."""
    return finding(
        (key,),
        "is not encrypted",
        HIDDEN,
        f"replace what was in the file, and run `pulumi config set --secret {key}`",
        "config.plain-secret",
    )
