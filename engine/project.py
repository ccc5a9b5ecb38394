"""Pulumi.yaml: where a project is and what it says about itself."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from engine.state import VERSION
from engine.usererror import UserError

Version: TypeAlias = tuple[int, int, int]

_CONDITION = re.compile(r"(>=|<=|==|!=|>|<|=|!)?\s*v?(\d+)(?:\.(\d+|x))?(?:\.(\d+|x))?\Z")
_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    "==": operator.eq,
    "!": operator.ne,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class VersionError(ValueError):
    """A range that cannot be read."""


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is in a range: blanks join conditions by "and", `||` by "or".

    Raises:
        VersionError: the range cannot be read.
    """
    own = _numbers(version.removeprefix("v").split("-")[0].split("."))
    return any(
        all(_holds(own, condition, wanted) for condition in alternative.split())
        for alternative in wanted.split("||")
    )


def _holds(own: Version, condition: str, wanted: str) -> bool:
    match = _CONDITION.match(condition)
    if match is None:
        raise VersionError(f"{wanted!r} is no version range (at {condition!r})")
    sign, *parts = match.groups()
    return _COMPARE[sign or ""](own, _numbers([p for p in parts if p and p != "x"]))


def _numbers(parts: list[str]) -> Version:
    major, minor, patch = ([int(p) for p in parts] + [0, 0, 0])[:3]
    return major, minor, patch


FILE_NAMES = ("Pulumi.yaml", "Pulumi.yml")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_TYPES = ("string", "integer", "boolean", "object")


@dataclass(frozen=True)
class ConfigDeclaration:
    """One entry under ``config`` in Pulumi.yaml: a default, or a typed key with its default."""

    key: str
    type: str | None = None
    default: Any = None
    has_default: bool = False
    secret: bool = False
    description: str = ""


@dataclass(frozen=True)
class Project:
    name: str
    file: Path
    runtime: str
    runtime_options: Mapping[str, Any] = field(default_factory=dict)
    main: str = ""
    description: str = ""
    config: tuple[ConfigDeclaration, ...] = ()
    config_folder: str = ""
    backend_url: str | None = None
    always_refresh: bool = False
    plugins: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of Pulumi.yaml."""
        return self.file.parent

    def stack_file(self, stack: str) -> Path:
        """Where the configuration of a stack lies."""
        return self.folder / self.config_folder / f"Pulumi.{stack}.yaml"


def find(start: Path) -> Path:
    """The Pulumi.yaml in `start` or in the nearest folder above it."""
    start = start.resolve()
    for folder in (start, *start.parents):
        for name in FILE_NAMES:
            if (folder / name).is_file():
                return folder / name
    raise UserError(
        f"no Pulumi.yaml project file found (searching upwards from {start});"
        " run this in a project or pass --cwd"
    )


def load(start: Path) -> Project:
    """The project that `start` belongs to."""
    file = find(start)
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"could not read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"could not parse {file}: {_one_line(error)}") from error
    if not isinstance(document, dict):
        raise UserError(f"{file}: expected a mapping with name and runtime")
    return _project(document, file)


def _project(document: dict[str, Any], file: Path) -> Project:
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UserError(
            f"{file}: project is missing a valid 'name' attribute"
            f" (got {name!r}; letters, digits, '-', '_' and '.' are allowed)"
        )
    runtime, options = _runtime(document.get("runtime"), file)
    _require_version(document, file)
    folder = _text(document, "stackConfigDir", file)
    if isinstance(document.get("config"), str):
        # The former meaning of `config`: the folder of the stack files.
        folder, document = document["config"], {**document, "config": None}
    config = _mapping(document, "config", file)
    plugins = _mapping(document, "plugins", file)
    if not all(isinstance(entry, dict) for entries in plugins.values() for entry in _list(entries)):
        raise UserError(f"{file}: 'plugins' has to hold lists of mappings with name and path")
    return Project(
        name=name,
        file=file,
        runtime=runtime,
        runtime_options=options,
        main=_text(document, "main", file),
        description=_text(document, "description", file),
        config=tuple(_declaration(str(key), value, name, file) for key, value in config.items()),
        config_folder=folder,
        backend_url=_mapping(document, "backend", file).get("url"),
        always_refresh=_mapping(document, "options", file).get("refresh") == "always",
        plugins=plugins,
    )


def _mapping(document: Mapping[str, Any], key: str, file: Path) -> dict[str, Any]:
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise UserError(f"{file}: '{key}' has to be a mapping, not {value!r}")
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(document: Mapping[str, Any], key: str, file: Path) -> str:
    value = document.get(key) or ""
    if not isinstance(value, str):
        raise UserError(f"{file}: '{key}' has to be a text, not {value!r}")
    return value


def _require_version(document: Mapping[str, Any], file: Path) -> None:
    wanted = _text(document, "requiredPulumiVersion", file)
    try:
        fits = not wanted or satisfies(VERSION, wanted)
    except VersionError as error:
        raise UserError(
            f"{file}: 'requiredPulumiVersion' is no range of versions: {error}"
        ) from None
    if not fits:
        raise UserError(
            f"{file}: the project wants Pulumi {wanted}; this engine follows {VERSION}. Use a Pulumi"
            " CLI of such a version, or change 'requiredPulumiVersion'"
        )


def _runtime(value: Any, file: Path) -> tuple[str, dict[str, Any]]:
    if isinstance(value, dict):
        name, options = value.get("name"), _mapping(value, "options", file)
    else:
        name, options = value, {}
    if name != "python":
        raise UserError(
            f"{file}: runtime is {name!r}; the embedded engine runs Python programs only:"
            " use the Pulumi CLI for others"
        )
    return name, options


def _declaration(key: str, value: Any, project: str, file: Path) -> ConfigDeclaration:
    if not isinstance(value, dict):
        return ConfigDeclaration(key, default=value, has_default=value is not None)
    own = ":" not in key or key.startswith(f"{project}:")
    kind = value.get("type")
    if "default" in value and "value" in value:
        raise UserError(f"{file}: config.{key} cannot have both a 'default' and a 'value'")
    if not own and (kind or "default" in value):
        raise UserError(
            f"{file}: config.{key} belongs to another namespace:"
            " it can have a 'value', but no 'type' and no 'default'"
        )
    if kind is not None and kind not in _TYPES:
        raise UserError(
            f"{file}: config.{key}.type is {kind!r}; the embedded engine checks {', '.join(_TYPES)}"
        )
    default = value.get("default", value.get("value"))
    return ConfigDeclaration(
        key=key,
        type=kind,
        default=default,
        has_default=default is not None,
        secret=bool(value.get("secret")),
        description=value.get("description") or "",
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
