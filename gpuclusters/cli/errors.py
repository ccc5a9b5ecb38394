"""Errors that end the command with one message and an exit code.

The docstring of a class says what it means; what follows "Do:" is the way out. Both are printed by
`gpu-clusters explain` under the class's id, which `error_id` derives from its name.
"""

from __future__ import annotations

from gpuclusters.domain import error_id


class _CommandError(Exception):
    """Ends the command."""

    exit_code = 1

    @property
    def error_id(self) -> str:
        """Of what failed beneath, where this only passes it on; else of the class."""
        passed_on = error_id.of(self.__cause__) if self.__cause__ is not None else None
        is_general = type(self) in (UsageError, RunError)
        return passed_on if passed_on and is_general else error_id.of_class(type(self))


class UsageError(_CommandError):
    """The command was called in a way that cannot work; nothing was started. Exit code 2.

    Do: change the call as the message says; `--help` has the options and examples.
    """

    exit_code = 2


class RunError(_CommandError):
    """Something failed while at work; the message says what is left. Exit code 1.

    Do: what the message says, then run the same command again: what was done stays done.
    """


class NoProjectError(UsageError):
    """The working directory is not within a checkout of gpu-clusters.

    Do: change into the folder with Pulumi.yaml, or below it.
    """


class NoStackError(UsageError):
    """There is no Pulumi.<stack>.yaml of that name.

    Do: name one that the message lists with `--stack`, or make it with `pulumi stack init`.
    """


class ConfigurationFaultsError(UsageError):
    """The stack file has faults; all of them stand below the message, each with its own id.

    Do: correct them; `gpu-clusters explain ID` says more about each.
    """


class WrongOptionError(UsageError):
    """An option has a value that it does not take, or does not fit another option or the cluster type.

    Do: write it as the message says; `--help` has examples.
    """


class EngineChoiceError(UsageError):
    """GPU_CLUSTERS_ENGINE asks for an engine that does not exist or cannot be had.

    Do: unset it to have the engine chosen, or install Pulumi.
    """


class UnreadableFileError(UsageError):
    """A file that an option names is missing, may not be read, or is not what it should be.

    Do: check the path and its permissions.
    """


class LabNotRunningError(UsageError):
    """The stack lives in the lab, and the lab does not run.

    Do: `gpu-clusters up`, or `gpu-clusters lab start` for the lab alone.
    """


class LabMissingError(UsageError):
    """The stack lives in the lab, and the lab is not installed.

    Do: `pip install gpu-clusters-lab gpu-clusters-engine`, or name your own machines in the stack file.
    """


class RealNodesError(UsageError):
    """The lab cannot have the nodes that `lab.nodes` asks for; nothing was started.

    Do: what the message says, or write `auto` or `simulated`. A lab keeps its kind of nodes until it is
    removed.
    """


class NotWrittenError(RunError):
    """A result cannot be written where an option says.

    Do: check permissions and space there, and run the command again.
    """


class NoOutputsError(RunError):
    """The stack has no outputs yet: it was never brought up, or has just been taken down.

    Do: `gpu-clusters up` first.
    """


class NoInitError(RunError):
    """The engine could not make the stack in its backend.

    Do: its own message stands above; `gpu-clusters doctor` looks at the backend.
    """


class StackLockedError(RunError):
    """Another run holds the lock of the stack, or may: one that runs, or one of another computer.

    Do: wait for it. Where you know that it is dead, give the command that the message ends with.
    """


class UnfinishedRunError(RunError):
    """A run that was killed left something that the next one cannot get past; nothing was changed.

    Do: `gpu-clusters up --repair`, or the commands that the message lists.
    """


class NotRepairedError(RunError):
    """What a killed run left was found, and its repair failed.

    Do: correct what the message says, then run the same command again, or give the commands that it lists.
    """
