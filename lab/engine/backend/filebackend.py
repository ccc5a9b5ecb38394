"""Stacks in a folder, in the layout of Pulumi's file backend (version 1: stacks by project)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.engine.backend import checkpoints, history, journalfile
from lab.engine.backend.bucket import Bucket
from lab.engine.backend.envelope import CURRENT_VERSION, Checkpoint
from lab.engine.backend.layout import META, STACKS, StackReference
from lab.engine.backend.locks import held, locked, release_all
from lab.engine.usererror import ExitCode, UserError

STACK_TYPE = "pulumi:pulumi:Stack"


class StackNotFoundError(UserError):
    """There is no such stack in the backend."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no stack named '{name}' found", ExitCode.NO_STACK)


class FileBackend:
    """All stacks below one folder."""

    def __init__(self, folder: Path) -> None:
        self.bucket = Bucket(folder)

    @property
    def url(self) -> str:
        """The address as the CLI prints it."""
        return f"file://{self.bucket.folder}"

    def prepare(self) -> None:
        """Check the layout, and mark a new backend with its version.

        Raises:
            UserError: the backend has another layout.
        """
        if not self.bucket.exists(META):
            if self.bucket.keys(STACKS):
                raise UserError(
                    f"{self.url} has the old layout without projects;"
                    " upgrade it with `pulumi state upgrade`"
                )
            self.bucket.write(META, b"version: 1\n")
            return
        try:
            meta = yaml.safe_load(self.bucket.read(META))
        except yaml.YAMLError as error:
            raise UserError(f"{self.bucket.path(META)} is damaged: {error}") from error
        version = meta.get("version") if isinstance(meta, dict) else None
        if version != 1:
            raise UserError(
                f"state store unsupported: {self.bucket.path(META)} says version {version},"
                " the embedded engine knows version 1"
            )

    def exists(self, stack: StackReference) -> bool:
        """Whether there is such a stack."""
        if self.bucket.exists(stack.checkpoint):
            return True
        for ending in (".gz", ".zst"):
            if self.bucket.exists(stack.checkpoint + ending):
                raise UserError(
                    f"{self.bucket.path(stack.checkpoint + ending)} is compressed,"
                    " which the embedded engine does not read; write it plain with the Pulumi CLI"
                )
        return False

    def require(self, stack: StackReference) -> None:
        """Raises `StackNotFoundError` if there is no such stack."""
        if not self.exists(stack):
            raise StackNotFoundError(stack.name)

    def stacks(self, project: str | None = None) -> list[StackReference]:
        """All stacks, or those of one project, by name."""
        projects = [project] if project else self.bucket.folders(STACKS)
        return [
            StackReference(name, key.rsplit("/", 1)[-1].removesuffix(".json"))
            for name in projects
            for key in self.bucket.keys(f"{STACKS}/{name}")
            if key.endswith(".json")
        ]

    def create(self, stack: StackReference, deployment: Mapping[str, Any]) -> None:
        """Make a stack with a first deployment.

        Raises:
            UserError: there is one of this name.
        """
        with locked(self.bucket, stack):
            if self.exists(stack):
                raise UserError(f"stack '{stack}' already exists")
            checkpoints.write(self.bucket, stack, Checkpoint(CURRENT_VERSION, deployment))

    def checkpoint(self, stack: StackReference) -> Checkpoint:
        """The state of a stack, with all steps of a run that is going on or was cut off.

        What a run that was cut off has left beside the state is put into it, unless a lock says
        that the run may still be going on.

        Raises:
            UserError: there is no such stack, or its state is damaged.
        """
        self.require(stack)
        checkpoint = checkpoints.read(self.bucket, stack)
        if checkpoint.journal and not held(self.bucket, stack):
            # To look at a state has to be possible where it cannot be written as well.
            with contextlib.suppress(UserError), locked(self.bucket, stack):
                return checkpoints.fold(self.bucket, stack)
        return checkpoint

    def replace(
        self, stack: StackReference, deployment: Mapping[str, Any], seen: Checkpoint
    ) -> None:
        """Put another deployment in place of a stack's own, as after an edit of what was `seen`.

        Raises:
            UserError: somebody has changed the state meanwhile, or is about to.
        """
        self.require(stack)
        with locked(self.bucket, stack):
            now = checkpoints.fold(self.bucket, stack)
            if (now.resources, now.pending_operations) != (
                seen.resources, seen.pending_operations,
            ):  # fmt: skip
                raise UserError(
                    f"the state of stack {stack.name} was changed by somebody else meanwhile;"
                    " this command has changed nothing: run it again"
                )
            new = dataclasses.replace(now, deployment=deployment)
            checkpoints.write(self.bucket, stack, new)

    def take_in(self, stack: StackReference, checkpoint: Checkpoint) -> None:
        """Put another state in place of a stack's own, whatever that is: it may be damaged."""
        self.require(stack)
        with locked(self.bucket, stack):
            checkpoints.write(self.bucket, stack, checkpoint)

    def cancel(self, stack: StackReference) -> int:
        """Remove all locks of a stack; gives their number.

        What the run that held them has done is put into the state.
        """
        count = release_all(self.bucket, stack)
        self.checkpoint(stack)
        return count

    def remove(self, stack: StackReference, *, force: bool, backups: bool) -> None:
        """Remove a stack with its history.

        Raises:
            UserError: it still has resources and `force` is not given.
        """
        with locked(self.bucket, stack):
            # With force a state that nobody can read any more goes as well.
            resources = [] if force else checkpoints.fold(self.bucket, stack).resources
            only_root = len(resources) == 1 and resources[0].get("type") == STACK_TYPE
            if resources and not only_root:
                raise UserError(
                    f"'{stack.name}' still has resources; removal rejected."
                    " Possible actions: run `destroy` first, or pass --force to forget them"
                )
            if backups:
                self.bucket.delete(f"{stack.checkpoint}.bak")
                self.bucket.delete_folder(stack.backups)
            else:
                self.bucket.copy(stack.checkpoint, f"{stack.checkpoint}.bak")
            self.bucket.delete(stack.checkpoint)
            journalfile.remove(self.bucket.path(stack.journal))
            self.bucket.delete(stack.tags)
            self.bucket.delete_folder(stack.history)
        self.bucket.delete_folder(stack.locks)

    def rename(self, old: StackReference, new: StackReference) -> None:
        """Give a stack another name, in its state and its history as well.

        Raises:
            UserError: there is a stack of that name.
        """
        with locked(self.bucket, old):
            if self.exists(new):
                raise UserError(f"a stack named {new} already exists")
            checkpoint = checkpoints.fold(self.bucket, old)
            deployment = _renamed(checkpoint.deployment or {}, old, new)
            renamed = dataclasses.replace(checkpoint, deployment=deployment)
            checkpoints.write(self.bucket, new, renamed)
            self.bucket.copy(old.checkpoint, f"{old.checkpoint}.bak")
            self.bucket.delete(old.checkpoint)
            for key in self.bucket.keys(old.history):
                name = key.rsplit("/", 1)[-1]
                head, _, tail = name.rpartition("-")
                if head == old.name:
                    self.bucket.copy(key, f"{new.history}/{new.name}-{tail}")
                    self.bucket.delete(key)
            if self.bucket.exists(old.tags):
                self.bucket.copy(old.tags, new.tags)
                self.bucket.delete(old.tags)
        self.bucket.delete_folder(old.locks)

    def tags(self, stack: StackReference) -> dict[str, str]:
        """The tags of a stack."""
        if not self.bucket.exists(stack.tags):
            return {}
        try:
            document = json.loads(self.bucket.read(stack.tags))
            return {str(k): str(v) for k, v in (document.get("tags") or {}).items()}
        except (ValueError, AttributeError) as error:
            raise UserError(f"{self.bucket.path(stack.tags)} is damaged: {error}") from error

    def set_tags(self, stack: StackReference, tags: Mapping[str, str]) -> None:
        """Replace all tags of a stack."""
        if not tags:
            self.bucket.delete(stack.tags)
            return
        document = {"version": 1, "tags": dict(sorted(tags.items()))}
        self.bucket.write(stack.tags, json.dumps(document, separators=(",", ":")).encode())

    def finish(self, stack: StackReference, record: history.UpdateRecord) -> None:
        """Note a finished run in the history and keep a backup of its state."""
        history.add(self.bucket, stack, record)
        history.back_up(self.bucket, stack)


def _renamed(
    deployment: Mapping[str, Any], old: StackReference, new: StackReference
) -> dict[str, Any]:
    """The deployment with the stack's name and project replaced in all URNs."""
    before = f"urn:pulumi:{old.name}::{old.project}::"
    after = f"urn:pulumi:{new.name}::{new.project}::"
    root = f"{before}{STACK_TYPE}::{old.project}-{old.name}"
    new_root = f"{after}{STACK_TYPE}::{new.project}-{new.name}"

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            if value == root:
                return new_root
            return after + value.removeprefix(before) if value.startswith(before) else value
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if isinstance(value, dict):
            return {renamed(key): renamed(item) for key, item in value.items()}
        return value

    document = dict(deployment)
    for name in ("resources", "pending_operations"):
        if name in document:
            # Property values are data of the program, not references.
            document[name] = [_renamed_entry(entry, renamed) for entry in document[name]]
    return document


def _renamed_entry(entry: Mapping[str, Any], renamed: Any) -> dict[str, Any]:
    data = ("inputs", "outputs")
    return {
        key: (
            _renamed_entry(value, renamed)
            if key == "resource"
            else value
            if key in data
            else renamed(value)
        )
        for key, value in entry.items()
    }
