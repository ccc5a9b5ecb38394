"""Errors that end the command with one message and an exit code."""

from __future__ import annotations


class UsageError(Exception):
    """Something that the user can put right. The message says what and how; exit code 2."""

    exit_code = 2


class RunError(Exception):
    """Something failed while at work; the message says what is left and what to do. Exit code 1."""

    exit_code = 1
