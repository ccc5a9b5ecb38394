"""`config set-all|rm-all|cp|refresh`: several values of a stack at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path as FilePath

from lab.engine.backend import history
from lab.engine.cli.parser import Parser
from lab.engine.cli.rekey import recrypt
from lab.engine.cli.workspace import Workspace
from lab.engine.stackconfig import ConfigKey, Secure, Tree, parse_key, parse_path_key, values
from lab.engine.stackconfig.keys import Path
from lab.engine.usererror import ExitCode, UserError


def add_actions(action: Callable[..., Parser]) -> None:
    """Register the actions below `config`."""
    put = action("set-all", _set_all, "set several values")
    put.add_argument("--secret", action="append", default=[], metavar="KEY=VALUE")
    put.add_argument("--plaintext", action="append", default=[], metavar="KEY=VALUE")
    put.add_argument("--json", metavar="JSON", help="as `config --json` prints them")
    put.add_argument("--path", action="store_true", help="the keys lead into values")
    remove = action("rm-all", _remove_all, "remove several values")
    remove.add_argument("keys", nargs="+", metavar="KEY")
    remove.add_argument("--path", action="store_true", help="the keys lead into values")
    remove.set_defaults(optional=("keys",))
    copy = action("cp", _copy, "copy values to another stack", "copy")
    copy.add_argument("key", nargs="?", metavar="KEY")
    copy.add_argument("--dest", "-d", required=True, metavar="STACK")
    copy.add_argument("--path", action="store_true", help="KEY leads into a value")
    copy.set_defaults(optional=("key",))
    refresh = action("refresh", _refresh, "take over the values of the last run")
    refresh.add_argument("--force", "-f", action="store_true", help="keep no copy of the file")


def split_key(text: str, workspace: Workspace, *, path: bool) -> tuple[ConfigKey, Path]:
    """The key, and the way into its value if `text` is a path."""
    if path:
        return parse_path_key(text, workspace.project.name)
    return parse_key(text, workspace.project.name), ()


def _set_all(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    if arguments.json and (arguments.secret or arguments.plaintext):
        raise UserError(
            "--json has all values in it: leave out --secret and --plaintext",
            ExitCode.CONFIGURATION,
        )
    if not (arguments.json or arguments.secret or arguments.plaintext):
        raise UserError(
            "nothing to set: write --plaintext KEY=VALUE or --secret KEY=VALUE, any number of times",
            ExitCode.CONFIGURATION,
        )
    file = workspace.stack_file
    pairs = [(text, False) for text in arguments.plaintext]
    pairs += [(text, True) for text in arguments.secret]
    for text, secret in pairs:
        name, equals, value = text.partition("=")
        if not equals:
            flag = "--secret" if secret else "--plaintext"
            raise UserError(f"{flag} {name!r}: write KEY=VALUE", ExitCode.CONFIGURATION)
        key, path = split_key(name, workspace, path=arguments.path)
        file.put(key, path, _tree(workspace, value, secret=secret, path=bool(path)))
    if arguments.json:
        for name, value, secret in _read_json(arguments.json):
            key, path = split_key(name, workspace, path=arguments.path)
            file.put(key, path, _tree(workspace, value, secret=secret, path=False))
    file.save()
    return 0


def _tree(workspace: Workspace, value: str, *, secret: bool, path: bool) -> Tree:
    if secret:
        return Secure(workspace.manager.crypter.encrypt(value))
    return values.coerce(value) if path else value


def _read_json(text: str) -> list[tuple[str, str, bool]]:
    """Key, value and whether it is secret, of each value."""
    import json

    try:
        document = json.loads(text)
        return [
            (str(key), _text(entry), bool(entry.get("secret"))) for key, entry in document.items()
        ]
    except (ValueError, AttributeError, KeyError) as error:
        raise UserError(
            '--json: write {"KEY": {"value": "TEXT", "secret": false}, …},'
            " as `config --json --show-secrets` prints it",
            ExitCode.CONFIGURATION,
        ) from error


def _text(entry: dict[str, object]) -> str:
    value = entry["value"]
    return value if isinstance(value, str) else values.go_json(value)


def _remove_all(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    for text in arguments.keys:
        key, path = split_key(text, workspace, path=arguments.path)
        workspace.stack_file.remove(key, path)
    workspace.stack_file.save()
    return 0


def _refresh(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    records = history.read(workspace.backend.bucket, workspace.stack)
    if not records:
        raise UserError(
            f"stack '{workspace.stack.name}' has never been updated: there is no configuration"
            " to take over"
        )
    checkpoint = workspace.backend.checkpoint(workspace.stack)
    file = workspace.stack_file
    provider = checkpoint.secrets_provider or {}
    salt = (provider.get("state") or {}).get("salt")
    if file.path.exists() and not arguments.force:
        _keep_copy(file.path)
    for key in list(file.config):
        file.remove(key, ())
    for name, tree in records[0].config.items():
        file.put(parse_key(name, workspace.project.name), (), values.from_yaml(tree))
    if salt:
        file.salt = str(salt)
    file.save()
    print(f"refreshed configuration for stack '{workspace.stack.name}'")
    return 0


def _keep_copy(path: FilePath) -> None:
    copy = path.with_name(f"{path.name}.bak")
    while copy.exists():
        copy = copy.with_name(f"{copy.name}.bak")
    try:
        copy.write_bytes(path.read_bytes())
    except OSError as error:
        raise UserError(f"could not write {copy}: {error.strerror}") from error
    print(f"backed up existing configuration file to {copy}")


def _copy(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    target = workspace.reference(arguments.dest)
    workspace.backend.require(target)
    if target == workspace.stack:
        raise UserError("current stack and destination stack are the same")
    # `--config-file` names the file of the stack that is copied from.
    other = {**vars(arguments), "stack": str(target), "config_file": None}
    destination = Workspace(argparse.Namespace(**other))
    chosen: list[tuple[ConfigKey, Path, Tree]]
    if arguments.key:
        key, path = split_key(arguments.key, workspace, path=arguments.path)
        tree, found = values.get(workspace.stack_file.config.get(key), path)
        if not found:
            raise UserError(f"cannot copy '{arguments.key}': it is not set")
        chosen = [(key, path, tree)]
    else:
        chosen = [(key, (), tree) for key, tree in workspace.stack_file.config.items()]
    for key, path, tree in chosen:
        destination.stack_file.put(key, path, recrypt(tree, workspace.manager, destination.manager))
    destination.stack_file.save()
    return 0
