"""`stack output|export|import|history`: looking at the state and carrying it around."""

import argparse
import dataclasses
import datetime
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.backend import history
from engine.backend.checkpoints import open_snapshot, opened, stored_manager
from engine.backend.envelope import Checkpoint, exported
from engine.backend.envelope import imported as taken_in
from engine.cli.configuration import value_json
from engine.cli.parser import Commands, command, stack_flags
from engine.cli.terminal import print_json, print_table, write_result
from engine.cli.workspace import Workspace
from engine.stackconfig import values
from engine.state import STACK_TYPE, ResourceState, Snapshot, StateError
from engine.usererror import UserError
from engine.values import blinded, encrypted, plaintext, reveal_all, values_to_state

_HIDDEN = "[secret]"


def add_actions(below: Commands) -> None:
    """Register the actions below `stack`."""
    output = command(below, "output", _output, "print outputs", optional=("name",))
    output.add_argument("name", nargs="?", metavar="NAME")
    output.add_argument("--json", "-j", action="store_true")
    export = command(below, "export", _export, "print the state")
    export.add_argument("--file", metavar="FILE")
    load = command(below, "import", _import, "replace the state")
    load.add_argument("--file", metavar="FILE")
    load.add_argument("--force", "-f", action="store_true")
    past = command(below, "history", _history, "list past runs", "hist")
    past.add_argument("--json", "-j", action="store_true")
    past.add_argument("--page-size", type=int, default=0, metavar="N", help="the newest N; 0: all")
    for parser in (output, export, past):
        parser.add_argument("--show-secrets", action="store_true")
    for parser in (output, export, load, past):
        stack_flags(parser)


def _output(arguments: argparse.Namespace) -> int:
    outputs = _outputs(Workspace(arguments), show_secrets=arguments.show_secrets)
    if arguments.name is not None:
        if arguments.name not in outputs:
            raise UserError(f"current stack does not have output property '{arguments.name}'")
        value = outputs[arguments.name]
        if arguments.json:
            print_json(value)
        else:
            print(_text(value))
        return 0
    if arguments.json:
        print_json(outputs)
    else:
        print(f"Current stack outputs ({len(outputs)}):")
        if outputs:
            print_table(
                ("    OUTPUT", "VALUE"),
                [(f"    {name}", _text(value)) for name, value in outputs.items()],
            )
        else:
            print("    No output values currently in this stack")
    return 0


def _outputs(workspace: Workspace, *, show_secrets: bool) -> dict[str, Any]:
    """The outputs of the stack; without `show_secrets` no passphrase is needed."""
    checkpoint = workspace.backend.checkpoint(workspace.stack)
    for resource in checkpoint.resources:
        if resource.get("type") == STACK_TYPE and not resource.get("parent"):
            if show_secrets:
                opener = _manager(workspace, checkpoint).decrypt
                outputs = ResourceState.from_json(resource, opener).outputs
                return values_to_state(reveal_all(outputs), plaintext)
            outputs = ResourceState.from_json(resource, lambda _: json.dumps(_HIDDEN)).outputs
            return values_to_state(outputs, blinded)
    return {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _export(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    checkpoint = workspace.backend.checkpoint(workspace.stack)
    deployment: Mapping[str, Any] | None = checkpoint.deployment
    if arguments.show_secrets and deployment is not None:
        deployment = _opened(workspace, checkpoint).to_json(plaintext)
    document = exported(checkpoint, deployment)
    text = json.dumps(document, indent=4, ensure_ascii=False) + "\n"
    if arguments.file:
        write_result(arguments.file, text)
    else:
        sys.stdout.write(text)
    return 0


def _import(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    stack = workspace.stack
    try:
        text = Path(arguments.file).read_text("utf-8") if arguments.file else sys.stdin.read()
        document = json.loads(text)
    except OSError as error:
        raise UserError(f"could not open {arguments.file}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the deployment to import is not valid JSON: {error}") from error
    imported = taken_in(document, force=arguments.force)
    deployment = imported.deployment or {}
    if not arguments.force:
        _check_urns(deployment, stack.name, stack.project)
    manager = stored_manager(imported, workspace.open) or workspace.manager
    try:
        snapshot = opened(imported, manager)
    except StateError as error:
        raise UserError(f"the deployment to import cannot be understood: {error}") from error
    # Plain secrets of an export with --show-secrets are encrypted on the way in.
    written = snapshot.to_json(encrypted(manager.encrypt))
    written.setdefault("secrets_providers", manager.state())
    workspace.backend.take_in(stack, dataclasses.replace(imported, deployment=written))
    print("Import complete.")
    return 0


def _check_urns(deployment: Mapping[str, Any], stack: str, project: str) -> None:
    prefix = f"urn:pulumi:{stack}::{project}::"
    for resource in deployment.get("resources") or ():
        urn = str(resource.get("urn"))
        if not urn.startswith(prefix):
            raise UserError(
                f"resource '{urn}' is from a different stack or project than {project}/{stack};"
                " pass --force to import it all the same"
            )


def _history(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    found = history.read(workspace.backend.bucket, workspace.stack)
    # The newest comes first, the oldest is number 1.
    records = [
        dataclasses.replace(record, version=len(found) - i) for i, record in enumerate(found)
    ]
    if arguments.page_size > 0:
        records = records[: arguments.page_size]
    if arguments.json:
        print_json([_record_json(workspace, r, arguments.show_secrets) for r in records])
        return 0
    if not records:
        print("Stack has never been updated")
    for record in records:
        changes = " ".join(f"{op} {count}" for op, count in sorted(record.changes.items()))
        print(
            f"Version: {record.version}\nUpdateKind: {record.kind}\nStatus: {record.result}\n"
            f"Message: {record.message}\nChanges: {changes or 'none'}\n"
            f"Updated at {_time(record.start)} took {record.end - record.start}s\n"
        )
    return 0


def _record_json(
    workspace: Workspace,
    record: history.UpdateRecord,
    show_secrets: bool,  # noqa: FBT001
) -> dict[str, Any]:
    return {
        "version": record.version,
        "kind": record.kind,
        "startTime": _time(record.start),
        "message": record.message,
        "environment": dict(record.environment),
        "config": {
            key: value_json(workspace, values.from_yaml(tree), show=show_secrets)
            for key, tree in record.config.items()
        },
        "result": record.result,
        "endTime": _time(record.end),
        "resourceChanges": dict(record.changes),
    }


def _time(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _opened(workspace: Workspace, checkpoint: Checkpoint) -> Snapshot:
    manager = _manager(workspace, checkpoint)
    return open_snapshot(workspace.backend.bucket, workspace.stack, checkpoint, manager)


def _manager(workspace: Workspace, checkpoint: Checkpoint) -> Any:
    return stored_manager(checkpoint, workspace.open) or workspace.manager
