"""Text rules with a message that says what to write instead."""

from __future__ import annotations

import re

from pydantic import AfterValidator


def matches(pattern: str, message: str) -> AfterValidator:
    """A pydantic validator: the whole text must match, or `message` is the error."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(message)
        return text

    return AfterValidator(check)
