"""Stacks in a folder, in the layout of Pulumi's file backend (version 1: stacks by project)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.backend import checkpoints, history
from engine.backend.bucket import Bucket
from engine.backend.envelope import CURRENT_VERSION, Checkpoint
from engine.backend.layout import META, STACKS, StackReference
from engine.backend.locks import locked, release_all
from engine.usererror import ExitCode, UserError

STACK_TYPE = "pulumi:pulumi:Stack"


class StackNotFoundError(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(f"no stack named '{name}' found", ExitCode.NO_STACK)


class FileBackend:
    def __init__(self, folder: Path) -> None:
        self.bucket = Bucket(folder)

    @property
    def url(self) -> str:
        return f"file://{self.bucket.folder}"

    def prepare(self) -> None:
        """Check the layout, and mark a new backend with its version."""
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
        with locked(self.bucket, stack):
            if self.exists(stack):
                raise UserError(f"stack '{stack}' already exists")
            checkpoints.write(self.bucket, stack, Checkpoint(CURRENT_VERSION, deployment))

    def checkpoint(self, stack: StackReference) -> Checkpoint:
        self.require(stack)
        return checkpoints.read(self.bucket, stack)

    def replace(
        self, stack: StackReference, deployment: Mapping[str, Any], seen: Checkpoint
    ) -> None:
        """Put another deployment in place of a stack's own, as after an edit of what was `seen`."""
        self.require(stack)
        with locked(self.bucket, stack):
            now = checkpoints.read(self.bucket, stack)
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
        """Remove all locks of a stack; gives their number."""
        self.require(stack)
        return release_all(self.bucket, stack)

    def remove(self, stack: StackReference, *, force: bool, backups: bool) -> None:
        with locked(self.bucket, stack):
            # With force a state that nobody can read any more goes as well.
            resources = [] if force else checkpoints.read(self.bucket, stack).resources
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
            self.bucket.delete(stack.tags)
            self.bucket.delete_folder(stack.history)
        self.bucket.delete_folder(stack.locks)

    def finish(self, stack: StackReference, record: history.UpdateRecord) -> None:
        """Note a finished run in the history and keep a backup of its state."""
        history.add(self.bucket, stack, record)
        history.back_up(self.bucket, stack)
