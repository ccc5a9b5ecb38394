"""Recipes for pipelines as their forges read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

RECIPES = Path(__file__).resolve().parents[2] / "docs/recipes"


class _Loader(yaml.SafeLoader):
    """YAML 1.2 of pipelines: `on` is a word."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
    for key, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))


def recipe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((RECIPES / name).read_text(), _Loader)
    return found
