"""`stack change-secrets-provider passphrase`: another passphrase for a stack."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable

from lab.engine.backend.checkpoints import detached, open_snapshot, stored_manager
from lab.engine.cli.flags import check_provider
from lab.engine.cli.parser import Parser, nested_stack_flag
from lab.engine.cli.terminal import interactive
from lab.engine.cli.workspace import Workspace
from lab.engine.secrets import SecretsManager, new_manager
from lab.engine.stackconfig import Secure, Tree
from lab.engine.usererror import ExitCode, UserError
from lab.engine.values import Encrypted


def add_actions(action: Callable[..., Parser]) -> None:
    """Register the action below `stack`."""
    change = action("change-secrets-provider", _change, "encrypt under another passphrase")
    change.add_argument("provider", metavar="passphrase")
    nested_stack_flag(change)


def recrypt(tree: Tree, old: SecretsManager, new: SecretsManager) -> Tree:
    """A value with its secrets encrypted by another manager."""
    return _sealed(_opened(tree, old), new)


def _change(arguments: argparse.Namespace) -> int:
    check_provider(arguments.provider)
    workspace = Workspace(arguments)
    backend, stack = workspace.backend, workspace.stack
    checkpoint = backend.checkpoint(stack)
    old = stored_manager(checkpoint, workspace.open) or workspace.manager
    snapshot = detached(open_snapshot(backend.bucket, stack, checkpoint, old))
    # Before anything is written, so that a wrong passphrase leaves all as it is.
    file, plain = workspace.stack_file, {}
    for key, tree in file.config.items():
        plain[key] = _opened(tree, workspace.manager)
    new = new_manager(_new_passphrase(arguments))
    document = snapshot.to_json(Encrypted(new.crypter.encrypt))
    document["secrets_providers"] = new.state()
    # The state first: from its own salt it can be opened whatever becomes of the file.
    backend.replace(stack, document, checkpoint)
    for key, tree in plain.items():
        if tree is not None:
            file.put(key, (), _sealed(tree, new))
    file.salt = new.salt
    file.save()
    print("Migrating old configuration and state to new secrets provider")
    return 0


class _Open(str):
    """A secret in plain text, on its way from one key to the other."""


def _opened(tree: Tree, manager: SecretsManager) -> Tree:
    if isinstance(tree, Secure):
        return _Open(manager.crypter.decrypt(tree.ciphertext))
    if isinstance(tree, list):
        return [_opened(item, manager) for item in tree]
    if isinstance(tree, dict):
        return {key: _opened(item, manager) for key, item in tree.items()}
    return tree


def _sealed(tree: Tree, manager: SecretsManager) -> Tree:
    if isinstance(tree, _Open):
        return Secure(manager.crypter.encrypt(tree))
    if isinstance(tree, list):
        return [_sealed(item, manager) for item in tree]
    if isinstance(tree, dict):
        return {key: _sealed(item, manager) for key, item in tree.items()}
    return tree


def _new_passphrase(arguments: argparse.Namespace) -> str:
    """From the terminal, twice; else the first line of stdin. The environment has the old one."""
    if not interactive(arguments):
        line = sys.stdin.readline()
        if not line:
            raise UserError(
                "the new passphrase is read from the terminal or from stdin; neither has one",
                ExitCode.CONFIGURATION,
            )
        return line.strip()
    first = getpass.getpass("Enter your new passphrase to protect config/secrets: ")
    if getpass.getpass("Re-enter your new passphrase to confirm: ") != first:
        raise UserError("passphrases do not match; nothing was changed")
    return first
