"""The configuration a program gets: the stack's values and, where it has none, the project's."""

import re
from collections.abc import Mapping

from engine.project import ConfigDeclaration, Project
from engine.stackconfig import values
from engine.stackconfig.keys import ConfigKey, parse_key
from engine.stackconfig.values import Secure, Tree
from engine.usererror import ExitCode, UserError

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")


def effective(project: Project, stack: Mapping[ConfigKey, Tree]) -> dict[ConfigKey, Tree]:
    """The stack's values together with the defaults of Pulumi.yaml."""
    merged = dict(stack)
    for declaration in project.config:
        key = _key(project, declaration)
        if declaration.has_default and key not in merged:
            merged[key] = values.from_yaml(declaration.default)
    return merged


def _key(project: Project, declaration: ConfigDeclaration) -> ConfigKey:
    """The key that Pulumi.yaml declares.

    Raises:
        UserError: it leads into a value.
    """
    if any(mark in declaration.key for mark in '.["'):
        raise UserError(
            f"Pulumi.yaml declares the configuration key {declaration.key!r}, which leads into a value:"
            " that is not part of the embedded engine; declare the whole value",
            ExitCode.CONFIGURATION,
        )
    return parse_key(declaration.key, project.name)


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
        key = _key(project, declaration)
        if key not in config:
            if key.namespace == project.name:
                missing.append(declaration.key)
            continue
        _check(declaration, stack, config[key])
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
    if not _fits(value, declaration.type):
        raise UserError(f"{where} must be of type '{declaration.type}'")


def _fits(value: Tree, kind: str) -> bool:
    if kind == "object":
        return isinstance(value, dict)
    if kind == "string" or isinstance(value, Secure):
        # A scalar of any kind reaches the program as a text; what a secret says is its business.
        return not isinstance(value, (list, dict))
    if kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    if isinstance(value, str):
        return _INTEGER.fullmatch(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)


def _listed(keys: list[str]) -> str:
    quoted = [f"'{key}'" for key in keys]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
