"""Errors that end the command with one message and an exit code.

`gpu-clusters explain` says more about each by its code, which `core/codes` lists.
"""

from __future__ import annotations

from gpuclusters.core.errors import code_of


class _CommandError(Exception):
    """Ends the command."""

    exit_code = 1
    code = "command.failed"

    @property
    def error_id(self) -> str:
        """Of what failed beneath, where this only passes it on; else of the class."""
        passes_on = type(self) in (UsageError, RunError)
        return (code_of(self.__cause__) if passes_on else "") or self.code


class UsageError(_CommandError):
    """The command was called in a way that cannot work; nothing was started. Exit code 2."""

    exit_code = 2
    code = "command.usage"


class RunError(_CommandError):
    """Something failed while at work; the message says what is left. Exit code 1."""


class NoProjectError(UsageError):
    """The working directory is not within a checkout of gpu-clusters."""

    code = "command.no-project"


class NoStackError(UsageError):
    """There is no Pulumi.<stack>.yaml of that name."""

    code = "command.no-stack"


class ConfigurationFaultsError(UsageError):
    """The stack file has faults; all of them stand below the message, each with its own id."""

    code = "command.configuration-faults"


class WrongOptionError(UsageError):
    """An option has a value that it does not take, or does not fit another option or the cluster type."""

    code = "command.wrong-option"


class EngineChoiceError(UsageError):
    """GPU_CLUSTERS_ENGINE asks for an engine that does not exist or cannot be had."""

    code = "command.engine-choice"


class UnreadableFileError(UsageError):
    """A file that an option names is missing, may not be read, or is not what it should be."""

    code = "command.unreadable-file"


class LabNotRunningError(UsageError):
    """The stack lives in the lab, and the lab does not run."""

    code = "lab.not-running"


class LabMissingError(UsageError):
    """The stack lives in the lab, and the lab is not installed."""

    code = "lab.missing"


class RealNodesError(UsageError):
    """The lab cannot have the nodes that `lab.nodes` asks for; nothing was started."""

    code = "lab.nodes"


class NotWrittenError(RunError):
    """A result cannot be written where an option says."""

    code = "command.not-written"


class NoOutputsError(RunError):
    """The stack has no outputs yet: it was never brought up, or has just been taken down."""

    code = "command.no-outputs"


class NoInitError(RunError):
    """The engine could not make the stack in its backend."""

    code = "command.no-init"


class StackLockedError(RunError):
    """Another run holds the lock of the stack, or may: one that runs, or one of another computer."""

    code = "command.stack-locked"


class UnfinishedRunError(RunError):
    """A run that was killed left something that the next one cannot get past; nothing was changed."""

    code = "command.unfinished-run"


class NotRepairedError(RunError):
    """What a killed run left was found, and its repair failed."""

    code = "command.not-repaired"
