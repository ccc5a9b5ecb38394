"""The one error by which a wrong configuration stops the program."""

from __future__ import annotations

from collections.abc import Iterable

import pulumi

from gpuclusters.config.fault import told
from gpuclusters.core.finding import Finding


class ConfigError(pulumi.RunError):
    """Everything that is wrong with the configuration, one line each.

    Pulumi prints a `RunError` as it is, without a traceback, and exits with a code other than 0.
    """

    def __init__(self, file: str, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(told(file, found) for found in self.findings))
