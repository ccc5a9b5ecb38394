"""What models of inputs and sections are made of: closed, unchangeable, texts with a rule; one merge."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it was built: a tenth of the time, at the start of every program."""


class Strict(BaseModel):
    """Unknown keys are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def matches(pattern: str, message: str) -> AfterValidator:
    """A pydantic validator: the whole text must match, or `message` is the error; it says what to write."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(message)
        return text

    return AfterValidator(check)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, key by key, as Helm merges values; lists are replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


class BlockDumper(yaml.SafeDumper):
    """YAML for files that people read: texts of several lines stand as blocks."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


BlockDumper.add_representer(str, _block)
