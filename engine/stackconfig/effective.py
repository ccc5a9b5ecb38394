"""The configuration a program gets: the stack's values and, where it has none, the project's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.project import ConfigDeclaration, Project
from engine.stackconfig import values
from engine.stackconfig.keys import ConfigKey, parse_path_key
from engine.stackconfig.values import Secure, Tree
from engine.usererror import ExitCode, UserError


def effective(project: Project, stack: Mapping[ConfigKey, Tree]) -> dict[ConfigKey, Tree]:
    """The stack's values together with the defaults of Pulumi.yaml."""
    merged = dict(stack)
    for declaration in project.config:
        key, path = parse_path_key(declaration.key, project.name)
        found = key in merged and values.get(merged[key], path)[1]
        if declaration.has_default and not found:
            default = values.from_yaml(declaration.default)
            merged[key] = values.put(merged.get(key), path, default)
    return merged


def refuse_unsupported(config: Mapping[ConfigKey, Tree]) -> None:
    """Refuse settings for the engine itself that this one does not follow."""
    if any(str(key) == "pulumi:autonaming" for key in config):
        raise UserError(
            "pulumi:autonaming is set, which the embedded engine does not hand to providers; give"
            " resources their names in the program",
            ExitCode.CONFIGURATION,
        )


def validate(project: Project, stack: str, config: Mapping[ConfigKey, Tree]) -> None:
    """Compare the merged configuration with the declarations of Pulumi.yaml."""
    missing = []
    for declaration in sorted(project.config, key=lambda d: d.key):
        key, path = parse_path_key(declaration.key, project.name)
        value, found = values.get(config[key], path) if key in config else (None, False)
        if not found:
            if key.namespace == project.name:
                missing.append(declaration.key)
            continue
        _check(declaration, stack, value)
    if missing:
        raise UserError(
            f"Stack '{stack}' is missing configuration"
            f" {'value' if len(missing) == 1 else 'values'} {_listed(missing)};"
            f" set {'it' if len(missing) == 1 else 'them'} with `config set {missing[0]} <value>`",
            ExitCode.FAILED,
        )


def _check(declaration: ConfigDeclaration, stack: str, value: Tree) -> None:
    if declaration.type is None:
        return
    where = f"Stack '{stack}' with configuration key '{declaration.key}'"
    if declaration.secret and not values.is_secret(value):
        raise UserError(f"{where} must be encrypted as it's secret; run `config set --secret`")
    # A scalar of any kind reaches the program as a text; inside lists the kind counts.
    text = declaration.type == "string" and not isinstance(value, (list, dict))
    if not text and not _fits(value, declaration.type, declaration.items):
        name = _type_name(declaration.type, declaration.items)
        raise UserError(f"{where} must be of type '{name}'")


def _fits(value: Any, kind: str, items: Mapping[str, Any] | None) -> bool:
    if isinstance(value, Secure):
        # A secret is a text; what it says is the program's business.
        return kind in ("string", "integer", "boolean")
    if kind == "string":
        return isinstance(value, str)
    if kind == "integer":
        if isinstance(value, str):
            return isinstance(values.coerce(value), int) and value not in ("true", "false")
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
        )
    if kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    if kind == "object":
        return isinstance(value, dict)
    if not isinstance(value, list) or items is None:
        return False
    return all(_fits(item, str(items.get("type")), items.get("items")) for item in value)


def _type_name(kind: str, items: Mapping[str, Any] | None) -> str:
    if kind != "array" or items is None:
        return kind
    return f"array<{_type_name(str(items.get('type')), items.get('items'))}>"


def _listed(keys: list[str]) -> str:
    quoted = [f"'{key}'" for key in keys]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
