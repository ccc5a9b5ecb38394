"""Reads a stack file without Pulumi, so that a wrong one is refused before anything starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuclusters.config.cluster import SECRET_KEYS, ClusterConfig
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.stack import (
    NAMESPACE,
    SECTIONS,
    TOP_LEVEL_KEYS,
    ClusterType,
    StackConfig,
    parse,
    plain_secret,
)
from gpuclusters.core.finding import Finding

_TAG = "tag:yaml.org,2002:"
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


def _resolvers() -> dict[str, list[tuple[str, Any]]]:
    kept: dict[str, list[tuple[str, Any]]] = {}
    for tag, pattern, firsts in (
        ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
        ("null", r"(?:~|null|Null|NULL|)$", "~nN\0"),
        ("int", r"(?:[-+]?(?:0|[1-9][0-9]{0,300})|0x[0-9a-fA-F]{1,300})$", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
        ("merge", r"(?:<<)$", "<"),
    ):
        for first in firsts:
            kept.setdefault("" if first == "\0" else first, []).append(
                (_TAG + tag, re.compile(pattern))
            )
    return kept


_Loader.yaml_implicit_resolvers = _resolvers()


def _whole(wrong: str, got: str, instead: str) -> list[Finding]:
    return [finding((), wrong, got, instead, "config.unreadable-stack-file")]


def read_stack_file(path: Path) -> dict[str, Any] | list[Finding]:
    """The keys of this program in a stack file, without their namespace and without secrets."""
    try:
        if path.stat().st_size > _LARGEST:
            return _whole("is too large", f"{path.stat().st_size} bytes", "write a stack file")
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
    except FileNotFoundError:
        instead = "create it: `pulumi stack init` and `pulumi config set`, or copy an example"
        return _whole("does not exist", NOTHING, instead)
    except (OSError, UnicodeDecodeError) as error:
        return _whole("cannot be read", str(error), "write a file in UTF-8")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "no position"
        what = f"is not YAML: {error.problem or error.context}"
        return _whole(what, where, "correct it there; indentation and colons decide")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = str(error).splitlines()[0][:200] if str(error) else "nested without end"
        return _whole("is not YAML", why, "write a stack file")
    return _keys(document)


def _keys(document: Any) -> dict[str, Any] | list[Finding]:
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        return _whole("is not a mapping", "something else", "write config: and keys beneath it")
    config = document.get("config") or {}
    if not isinstance(config, Mapping):
        wrong, got, instead = "is not a mapping", "something else", "write keys beneath it"
        return [finding(("config",), wrong, got, instead, "config.wrong-type")]
    keys: dict[str, Any] = {}
    faults: list[Finding] = []
    for full_key, value in config.items():
        namespace, colon, key = str(full_key).partition(":")
        if namespace != NAMESPACE:
            meant = key if colon else namespace
            near = not colon or difflib.get_close_matches(namespace, [NAMESPACE], cutoff=0.8)
            if near and meant in TOP_LEVEL_KEYS:
                instead = f"write {NAMESPACE}:{meant}"
                got = f"the key {show(full_key)}"
                wrong = f"is not a key of {NAMESPACE}"
                faults.append(
                    finding(("config", str(full_key)), wrong, got, instead, "config.unknown-key")
                )
            continue
        if key not in SECRET_KEYS:
            keys[key] = value
        elif not (isinstance(value, Mapping) and set(value) == {"secure"}):
            faults.append(plain_secret(key))
    return faults or keys


def check_stack_file(path: Path) -> StackConfig | list[Finding]:
    """What a stack file says, or everything that is wrong with it."""
    document = read_stack_file(path)
    if isinstance(document, list):
        return document
    return parse(document)


def other_sections(path: Path, chosen: ClusterType) -> tuple[ClusterConfig, ...]:
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
