"""`config`: reading and changing the configuration of a stack."""

import argparse
import json
import math
import re
import sys
from collections import Counter
from typing import Any

from engine.cli.parser import Commands, actions, command, stack_flags
from engine.cli.terminal import interactive, print_json, print_table
from engine.cli.workspace import Workspace
from engine.stackconfig import values
from engine.stackconfig.keys import ConfigKey, parse_key
from engine.stackconfig.values import Secure, Tree
from engine.usererror import ExitCode, UserError

_TYPES = {"string": str, "int": int, "float": float}
_SECRET_NAME = re.compile(r"passwd|pass|pwd|secret|token", re.IGNORECASE)


def add_verbs(verbs: Commands) -> None:
    """Register `config` and what is below it."""
    config = command(verbs, "config", _list, "manage configuration")
    config.add_argument("--show-secrets", action="store_true", help="show secrets in plain text")
    config.add_argument("--json", "-j", action="store_true")
    below = actions(config)
    get = command(below, "get", _get, "print a value")
    get.add_argument("key", metavar="KEY")
    get.add_argument("--json", "-j", action="store_true", default=argparse.SUPPRESS)
    put = command(below, "set", _set, "set a value", optional=("value",))
    put.add_argument("key", metavar="KEY")
    put.add_argument("value", nargs="?", metavar="VALUE")
    kind = put.add_mutually_exclusive_group()
    kind.add_argument("--secret", action="store_true", help="encrypt the value")
    kind.add_argument("--plaintext", action="store_true", help="do not encrypt it")
    kind.add_argument("--type", choices=(*_TYPES, "bool"), help="keep it as this type")
    put.add_argument("--raw", action="store_true", help="keep the last line break of stdin")
    remove = command(below, "rm", _remove, "remove a value", "remove", "delete")
    remove.add_argument("key", metavar="KEY")
    for parser in (config, get, put, remove):
        stack_flags(parser, file=True)


def _list(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    rows = sorted(workspace.config.items())
    if arguments.json:
        print_json(
            {
                str(key): value_json(workspace, tree, show=arguments.show_secrets)
                for key, tree in rows
            }
        )
        return 0
    project = workspace.project.name
    print_table(
        ("KEY", "VALUE"),
        [
            (key.pretty(project), _text(workspace, tree, show=arguments.show_secrets))
            for key, tree in rows
        ],
    )
    return 0


def _get(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    key = _key(arguments, workspace)
    if key not in workspace.config:
        raise UserError(
            f"configuration key '{key.pretty(workspace.project.name)}' not found"
            f" for stack '{workspace.stack.name}'",
            ExitCode.FAILED,
        )
    tree = workspace.config[key]
    if arguments.json:
        print_json(value_json(workspace, tree, show=True))
    else:
        print(_text(workspace, tree, show=True))
    return 0


def _set(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    key = _key(arguments, workspace)
    value = arguments.value if arguments.value is not None else _read_value(arguments)
    if arguments.secret:
        tree: Tree = Secure(workspace.manager.encrypt(value))
    elif arguments.type:
        tree = _typed(value, arguments.type)
    else:
        if not arguments.plaintext and looks_like_secret(key, value):
            raise UserError(
                f"config value for '{key}' looks like a secret; rerun with --secret to encrypt it,"
                " or --plaintext if you meant to store in plaintext"
            )
        tree = value
    workspace.stack_file.put(key, tree)
    workspace.stack_file.save()
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    key = _key(arguments, workspace)
    workspace.stack_file.remove(key)
    workspace.stack_file.save()
    return 0


def _key(arguments: argparse.Namespace, workspace: Workspace) -> ConfigKey:
    return parse_key(arguments.key, workspace.project.name)


def _read_value(arguments: argparse.Namespace) -> str:
    if not sys.stdin.isatty():
        text = sys.stdin.read()
        return text if arguments.raw else text.removesuffix("\n").removesuffix("\r")
    if not interactive(arguments):
        raise UserError(
            "config value must be specified in non-interactive mode", ExitCode.CONFIGURATION
        )
    if arguments.secret:
        import getpass

        return getpass.getpass("value: ")
    return input("value: ")


def _typed(value: str, kind: str) -> Tree:
    if kind == "bool":
        if value not in ("true", "false"):
            raise UserError(f"{value!r} is no bool: write true or false", ExitCode.CONFIGURATION)
        return value == "true"
    try:
        typed: Tree = _TYPES[kind](value)
    except ValueError as error:
        raise UserError(f"{value!r} is no {kind}", ExitCode.CONFIGURATION) from error
    return typed


def looks_like_secret(key: ConfigKey, value: str) -> bool:
    """Whether a key that sounds like a secret has a value that looks random.

    Like Pulumi's own rule this guesses: names such as ``token``, and at least 40 bits in the
    first 16 characters with 3 bits or more per character.
    """
    if not _SECRET_NAME.search(key.name):
        return False
    sample = value[:16]
    if not sample or " " in sample:
        return False
    counts = Counter(sample)
    bits = -sum(n * math.log2(n / len(sample)) for n in counts.values())
    mixed = sum(bool(re.search(kind, sample)) for kind in ("[a-z]", "[A-Z]", "[0-9]")) > 1
    return mixed and bits >= 40 and bits / len(sample) >= 3


def _text(workspace: Workspace, tree: Tree, *, show: bool) -> str:
    if not show:
        return values.text(tree, lambda _: "[secret]")
    return values.text(tree, lambda text: workspace.manager.decrypt(text))


def value_json(workspace: Workspace, tree: Tree, *, show: bool) -> dict[str, Any]:
    """A value as JSON; a secret that is not to be shown says only that it is one."""
    secret = values.is_secret(tree)
    if secret and not show:
        return {"secret": True}
    document: dict[str, Any] = {"value": _text(workspace, tree, show=True)}
    if values.is_object(tree):
        document["objectValue"] = json.loads(document["value"])
    return {**document, "secret": secret}
