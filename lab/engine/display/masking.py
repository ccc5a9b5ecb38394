"""Keeping secret configuration out of everything that is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

MASK = "[secret]"
# Shorter texts are left alone: masking every "on" would make the output unreadable.
SHORTEST = 3


class Masker:
    """Replaces the plain text of secrets, wherever it stands, as Pulumi does."""

    def __init__(self, secrets: Iterable[str]) -> None:
        hidden: set[str] = set()
        for secret in secrets:
            if len(secret) >= SHORTEST and secret.lower() not in ("true", "false"):
                # A secret may stand inside of a JSON text as well.
                hidden |= {
                    secret,
                    json.dumps(secret)[1:-1],
                    json.dumps(secret, ensure_ascii=False)[1:-1],
                }
        longest_first = sorted(hidden, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if hidden else None

    def text(self, text: str) -> str:
        """A text without the secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """JSON data without the secrets; keys stay as they are."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return value
