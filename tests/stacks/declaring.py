"""Runs the program of a stack under a recording engine, no lab running, with made-up secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi

from gpuclusters.config import loader
from stacks import caas
from tests.components.recorder import Recorder, record

PROJECT = Path(__file__).resolve().parents[2]
MADE_UP = "made up for this test"
SECRETS = {
    "gpu-clusters:kubeconfig": f"clusters: []  # {MADE_UP}",
    "gpu-clusters:ssh-private-key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MADE_UP}",
    "gpu-clusters:controller-ssh-private-key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MADE_UP}",
    "gpu-clusters:bmc-password": MADE_UP,
}


def declared(keys: Mapping[str, Any], *, preview: bool) -> Recorder:
    """What the program declares for these keys of the stack file."""
    config = {
        f"gpu-clusters:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in keys.items()
    }

    def program() -> None:
        pulumi.runtime.set_all_config({**config, **SECRETS}, list(SECRETS))
        loaded = loader.load(PROJECT)
        caas.build(loaded.section, loaded.secrets)

    return record(program, preview=preview)
