"""What models of inputs and sections are made of: closed and unchangeable, texts with a rule."""

from __future__ import annotations

import re

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict


class Strict(BaseModel):
    """Unknown keys are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def matches(pattern: str, message: str) -> AfterValidator:
    """A pydantic validator: the whole text must match, or `message` is the error; it says what to write."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(message)
        return text

    return AfterValidator(check)


class BlockDumper(yaml.SafeDumper):
    """YAML for files that people read: texts of several lines stand as blocks."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


BlockDumper.add_representer(str, _block)
