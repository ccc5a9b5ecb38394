"""The configuration of a stack, read without Pulumi: a wrong one is refused before anything starts.

A cluster type is added by one module with its section's model and rules, and one line in `SECTIONS`.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import yaml

from gpuclusters.config import gke_rules
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import KEY as LAB
from gpuclusters.config.cluster import SECRET_KEYS, ClusterConfig, LabConfig
from gpuclusters.config.fault import HIDDEN, NOTHING, finding, show
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.rke2_cluster import FoundCluster, MadeCluster, Rke2Config, variant
from gpuclusters.config.rke2_rules import gpus, machines, operator
from gpuclusters.config.rules import cluster, fabric, machine, tenant
from gpuclusters.config.rules.rule import Rule, of
from gpuclusters.config.structure import Reading, read
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_rules import machines as usernetes_machines
from gpuclusters.config.usernetes_rules import versions
from gpuclusters.core.finding import Finding, Level, Path

NAMESPACE = "gpu-clusters"
"""Prefix of all keys of this program in a stack file."""

_DEEPEST = 20
"""Levels of a document; what is deeper is a mistake or an attack."""
_TYPE, _NO_TEXT = "config.unknown-cluster-type", "config.key-is-no-text"
_UNKNOWN_KEY = "config.unknown-key"


class ClusterType(StrEnum):
    CAAS = "caas"
    RKE2 = "rke2"
    USERNETES = "usernetes"
    GKE = "gke"


class SectionKind(NamedTuple):
    models: tuple[
        type[CaasConfig] | type[Rke2Config] | type[UsernetesConfig] | type[GkeConfig], ...
    ]
    """Its variants, the usual one first."""
    rules: tuple[Rule, ...]

    def model(self, section: Mapping[str, Any]) -> type[ClusterConfig]:
        """The variant that a section is."""
        return self.models[0] if len(self.models) == 1 else variant(section)


CAAS_RULES = of(cluster, fabric, machine, tenant)
RKE2_RULES = of(machines, operator, gpus)
USERNETES_RULES = of(usernetes_machines, versions)
GKE_RULES = of(gke_rules)
SECTIONS: Mapping[ClusterType, SectionKind] = {
    ClusterType.CAAS: SectionKind((CaasConfig,), CAAS_RULES),
    ClusterType.RKE2: SectionKind((MadeCluster, FoundCluster), RKE2_RULES),
    ClusterType.USERNETES: SectionKind((UsernetesConfig,), USERNETES_RULES),
    ClusterType.GKE: SectionKind((GkeConfig,), GKE_RULES),
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
    reading: Reading[Any] = read(kind.model(document[key]), document[key])
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
        yield finding(_TYPE, ("cluster-type",), NOTHING, "missing", types=types)
    elif not isinstance(chosen, str) or chosen not in list(SECTIONS):
        yield finding(_TYPE, ("cluster-type",), show(chosen), "unknown", types=types)
    else:
        yield from _section_is_there(document, chosen)
    for key in list(document):
        if key not in TOP_LEVEL_KEYS:
            yield _unknown_top_level(key)


def _section_is_there(document: Mapping[str, Any], chosen: str) -> Iterator[Finding]:
    section = document.get(chosen)
    if section is None or section == {}:  # the latter is the project's default
        yield finding("config.missing-key", (chosen,), NOTHING, "section", key=chosen)
    elif not isinstance(section, Mapping):
        yield _no_mapping(section, chosen)


def _no_mapping(section: Any, key: str) -> Finding:
    return finding("config.wrong-type", (key,), show(section, (key,)), "mapping_type")


def _unknown_top_level(key: object) -> Finding:
    if not isinstance(key, str):
        return finding(_NO_TEXT, (), show(key), "top-level")
    near = difflib.get_close_matches(key, TOP_LEVEL_KEYS, n=1)
    known = [f"{NAMESPACE}:{one}" for one in near or TOP_LEVEL_KEYS]
    case = "near" if near else "top-level"
    return finding(_UNKNOWN_KEY, (key,), f"the key {show(key)}", case, near=known, known=known)


def _unreadable(document: Any, path: Path) -> Iterator[Finding]:
    """Keys that are no text, encrypted values, and documents without a bottom."""
    if len(path) > _DEEPEST:
        yield finding("config.nested-too-deeply", path[:4], f"{len(path)} levels")
    elif isinstance(document, Mapping):
        if set(document) == {"secure"}:
            yield finding("config.encrypted-section", path, HIDDEN, "others", secrets=SECRET_KEYS)
            return
        for key, value in document.items():
            if isinstance(key, str):
                yield from _unreadable(value, (*path, key))
            else:
                case = "number" if isinstance(key, int) else "other"
                yield finding(_NO_TEXT, path, show(key), case, key=key)
    elif isinstance(document, list | tuple):
        for position, value in enumerate(document):
            yield from _unreadable(value, (*path, position))


def plain_secret(key: str) -> Finding:
    """A secret that stands in the file for everybody to read."""
    return finding("config.plain-secret", (key,), HIDDEN, "key", key=key)


_LARGEST = 4 * 1024 * 1024


class _Loader(yaml.SafeLoader):
    """YAML as Pulumi reads it: `on` and `0000:10:00.0` are text, and a key stands once.

    PyYAML follows YAML 1.1, in which the one is a truth value and the other a number to base 60.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        """A mapping, unless it says the same key twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value[:60]!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _firsts in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"(?:[-+]?(?:0|[1-9][0-9]{0,300})|0x[0-9a-fA-F]{1,300})$", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("merge", r"(?:<<)$", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), [*_firsts])


def _whole(case: str, got: str, why: str = "") -> list[Finding]:
    return [finding("config.unreadable-stack-file", (), got, case, why=why)]


def read_stack_file(path: pathlib.Path) -> dict[str, Any] | list[Finding]:
    """The keys of this program in a stack file, without their namespace and without secrets."""
    try:
        if path.stat().st_size > _LARGEST:
            return _whole("large", f"{path.stat().st_size} bytes")
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
    except FileNotFoundError:
        return _whole("missing", NOTHING)
    except (OSError, UnicodeDecodeError) as error:
        return _whole("unreadable", str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "no position"
        return _whole("no-yaml-from", where, f"{error.problem or error.context}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = str(error).splitlines()[0][:200] if str(error) else "nested without end"
        return _whole("no-yaml", why)
    return _keys(document)


def _keys(document: Any) -> dict[str, Any] | list[Finding]:
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        return _whole("no-mapping", "something else")
    config = document.get("config") or {}
    if not isinstance(config, Mapping):
        return [finding("config.wrong-type", ("config",), "something else", "mapping_type")]
    keys: dict[str, Any] = {}
    faults: list[Finding] = []
    for full_key, value in config.items():
        namespace, colon, key = str(full_key).partition(":")
        if namespace != NAMESPACE:
            meant = key if colon else namespace
            near = not colon or difflib.get_close_matches(namespace, [NAMESPACE], cutoff=0.8)
            if near and meant in TOP_LEVEL_KEYS:
                where, got = ("config", str(full_key)), f"the key {show(full_key)}"
                faults.append(finding(_UNKNOWN_KEY, where, got, "namespace", key=meant))
            continue
        if key not in SECRET_KEYS:
            keys[key] = value
        elif not (isinstance(value, Mapping) and set(value) == {"secure"}):
            faults.append(plain_secret(key))
    return faults or keys


def check_stack_file(path: pathlib.Path) -> StackConfig | list[Finding]:
    """What a stack file says, or everything that is wrong with it."""
    document = read_stack_file(path)
    if isinstance(document, list):
        return document
    return parse(document)


def other_sections(path: pathlib.Path, chosen: ClusterType) -> tuple[ClusterConfig, ...]:
    """Sections of the cluster types that are not chosen, as far as they are right."""
    document = read_stack_file(path)
    if isinstance(document, list):
        return ()
    read = (
        parse({"cluster-type": kind.value, kind.value: document[kind]})
        for kind in SECTIONS
        if kind is not chosen and document.get(kind)
    )
    return tuple(one.section for one in read if isinstance(one, StackConfig))
