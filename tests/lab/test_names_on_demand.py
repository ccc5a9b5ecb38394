"""Packages of the lab whose names are imported when they are asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

PACKAGES = ("control_plane", "gpu_operator", "hosts", "kubelet", "nodes")
NONE = "frobnicate"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_is_what_a_type_checker_takes_it_for(package: str) -> None:
    module = import_module(f"lab.{package}")
    source = ast.parse(Path(str(module.__file__)).read_text())
    declared = {
        alias.name: node.module
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.startswith(f"lab.{package}.")
    }
    assert set(module.__all__) == set(declared)
    for name, home in declared.items():
        assert getattr(module, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_none_is_refused_as_python_does(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'lab.{package}' has no attribute '{NONE}'"):
        getattr(import_module(f"lab.{package}"), NONE)


def test_the_first_process_of_a_node_imports_no_client_and_no_simulated_host() -> None:
    """It starts with every node, and a node starts in two seconds."""
    listed = subprocess.run(
        [sys.executable, "-c", "import sys, lab.nodes.first_process; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "lab.nodes.first_process" in listed
    assert {"kubernetes", "pydantic", "aiohttp", "lab.hosts.host"}.isdisjoint(listed)
