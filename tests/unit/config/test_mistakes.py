"""Mistakes that people made with the examples: each is answered by its key, and by what to write instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.config.cluster import placeholders
from gpuclusters.config.fault import lines
from gpuclusters.config.stack import StackConfig, check_stack_file
from tests.fixtures.tables import beside
from tests.unit.config.documents import patched, places

ROOT = Path(__file__).resolve().parents[3]
MISTAKES = beside(__file__, "mistakes.yaml")
MADE_UP = ("example.", "EXAMPLE", "0" * 40, "my-project")


def said(folder: Path, config: dict[str, Any]) -> list[str]:
    file = folder / "Pulumi.mine.yaml"
    file.write_text(yaml.safe_dump({"config": config}, sort_keys=False))
    found = check_stack_file(file)
    return lines(file, found.warnings if isinstance(found, StackConfig) else found)


def example(stack: str) -> tuple[dict[str, Any], str]:
    """A stack's configuration, and the key of its section."""
    config = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]
    return config, f"gpu-clusters:{config['gpu-clusters:cluster-type']}"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["name"])
def test_a_mistake_is_answered_by_its_key_and_what_to_write(
    mistake: dict[str, Any], tmp_path: Path
) -> None:
    config, key = example(mistake["stack"])
    before = said(tmp_path, config)
    config[key] = patched(config[key], mistake["write"])
    answer = [line for line in said(tmp_path, config) if line not in before]
    wrong = re.escape(mistake["wrong"])
    assert any(re.match(rf"Pulumi\.mine\.yaml:\d+: {wrong}", line) for line in answer), answer
    assert any(mistake["instead"] in line for line in answer)
    assert len(answer) <= 7, "one mistake is not told over and over"
    assert "PRIVATE KEY" not in "".join(answer)


@pytest.mark.parametrize("key", ["caas", "gpu-cluster:caas", "gpu_clusters:caas"])
def test_a_section_without_the_namespace_is_told_its_name(key: str, tmp_path: Path) -> None:
    config, section = example("hgx-h100")
    config[key] = config.pop(section)
    (line,) = said(tmp_path, config)
    assert f'(got the key "{key}"); write gpu-clusters:caas' in line


@pytest.mark.parametrize("stack", ["hgx-h100", "rke2-a100", "usernetes-v100", "dev"])
def test_everything_made_up_in_an_example_is_known_as_a_placeholder(stack: str) -> None:
    checked = check_stack_file(ROOT / f"Pulumi.{stack}.yaml")
    assert isinstance(checked, StackConfig)
    found = {one.path for one in placeholders(checked.section)}
    config, section = example(stack)
    made_up = {
        path
        for path, value in places(config[section])
        if isinstance(value, str) and any(mark in value for mark in MADE_UP)
    }
    assert made_up
    assert found == (made_up if stack != "dev" else set()), "a lab may have made up names"
