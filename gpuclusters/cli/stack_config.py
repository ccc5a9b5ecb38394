"""The configuration of a stack, valid, before anything is started."""

from __future__ import annotations

import sys

from gpuclusters.cli.errors import ConfigurationFaultsError
from gpuclusters.cli.project import Project
from gpuclusters.config.fault import told
from gpuclusters.config.stack import StackConfig
from gpuclusters.config.stack_file import check_stack_file


def read_valid(project: Project, stack: str) -> StackConfig:
    """The stack's configuration; warnings go to stderr.

    Raises:
        UsageError: it has faults; the message is all of them, a line each.
    """
    file = project.stack_file(stack)
    checked = check_stack_file(file)
    if isinstance(checked, list):
        faults = "\n".join(f"  {told(file.name, found)}" for found in checked)
        count = "one fault" if len(checked) == 1 else f"{len(checked)} faults"
        raise ConfigurationFaultsError(
            f"the configuration has {count}; nothing was started\n{faults}"
        )
    for warning in checked.warnings:
        sys.stderr.write(f"warning: {told(file.name, warning)}\n")
    return checked
