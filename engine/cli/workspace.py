"""What a command works on: the project, the backend, the stack, its file and its secrets."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from engine import project as projects
from engine.backend import address
from engine.backend.address import backend_folder, pulumi_home
from engine.backend.checkpoints import stored_manager
from engine.backend.filebackend import FileBackend
from engine.backend.layout import StackReference, parse_reference
from engine.backend.store import CheckpointStore
from engine.project import Project
from engine.secrets import SecretsManager, new_manager, read_passphrase
from engine.stackconfig.effective import effective
from engine.stackconfig.keys import ConfigKey
from engine.stackconfig.stackfile import StackFile
from engine.stackconfig.values import Tree
from engine.usererror import ExitCode, UserError


class Workspace:
    """Everything is found when it is first asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._name: str | None = getattr(arguments, "stack", None)
        self._config_file: str | None = getattr(arguments, "config_file", None)

    @cached_property
    def project(self) -> Project:
        return projects.load(Path.cwd())

    @cached_property
    def home(self) -> Path:
        """The folder of the CLI's own files."""
        return pulumi_home()

    @cached_property
    def backend(self) -> FileBackend:
        backend = FileBackend(backend_folder(self._project_url()))
        backend.prepare()
        return backend

    @cached_property
    def stack(self) -> StackReference:
        """The stack that is named or selected; it exists."""
        name = self._name or os.environ.get("PULUMI_STACK")
        if not name:
            name = address.selected(self.home, self.project)
        if not name:
            raise UserError(
                "no stack selected; pass --stack, set PULUMI_STACK,"
                " or choose one with `stack select` or `stack init`",
                ExitCode.NO_STACK,
            )
        reference = self.reference(name)
        self.backend.require(reference)
        return reference

    @cached_property
    def stack_file(self) -> StackFile:
        """The configuration of the stack as it is in its file."""
        return self.file_of(self.stack)

    @cached_property
    def config(self) -> dict[ConfigKey, Tree]:
        """The configuration with the defaults of the project."""
        return effective(self.project, self.stack_file.config)

    @cached_property
    def manager(self) -> SecretsManager:
        """The secrets manager of the stack; a stack without one gets a new one.

        The salt is that of the stack file, else the one in the state.
        """
        return self._manager(
            self.stack_file, lambda: stored_manager(self.backend.checkpoint(self.stack), self.open)
        )

    def new_manager(self, stack: StackReference) -> SecretsManager:
        """The secrets manager for a stack that is about to be made."""
        return self._manager(self.file_of(stack), lambda: None)

    def _manager(
        self, file: StackFile, stored: Callable[[], SecretsManager | None]
    ) -> SecretsManager:
        """The manager of a stack's file, which keeps its salt."""
        if file.salt:
            return self.open(file.salt)
        manager = stored() or new_manager(self._passphrase())
        file.salt = manager.salt
        file.save()
        return manager

    def shown(self, stack: StackReference) -> str:
        """A stack as people write it: in full where it is of another project."""
        try:
            own = self.project.name
        except UserError:
            own = ""
        return stack.name if stack.project == own else str(stack)

    def reference(self, name: str) -> StackReference:
        """A stack by its name, which need not exist."""
        if name.count("/") == 2:
            return parse_reference(name, None)
        return parse_reference(name, self.project.name)

    def file_of(self, stack: StackReference) -> StackFile:
        """The configuration file of a stack of this project."""
        if self._config_file:
            path = Path(self._config_file).absolute()
        else:
            path = self.project.stack_file(stack.name)
        return StackFile.load(path, self.project.name)

    def open(self, salt: str) -> SecretsManager:
        """The manager that wrote a state, by its salt."""
        return SecretsManager(salt, self._passphrase)

    def store(self) -> CheckpointStore:
        """Where the engine loads and saves the state of the stack."""
        return CheckpointStore(self.backend.bucket, self.stack, self.manager, self.open)

    def _passphrase(self) -> str:
        asking = not self._arguments.non_interactive and sys.stdin.isatty()
        return read_passphrase("Enter your passphrase to unlock config/secrets", interactive=asking)

    def _project_url(self) -> str | None:
        try:
            return self.project.backend_url
        except UserError:
            # Commands that name a stack in full work outside of a project, too.
            return None


def check_provider(name: str) -> None:
    """Refuse secrets providers but the default and a passphrase, which are the same here."""
    if name not in ("default", "passphrase"):
        raise UserError(
            f"secrets provider {name!r}: the embedded engine encrypts under a passphrase only;"
            " use the Pulumi CLI for others",
            ExitCode.CONFIGURATION,
        )
