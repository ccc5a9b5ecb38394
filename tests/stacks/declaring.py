"""Runs the program of a stack under a recording engine, no lab running, with made-up secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pulumi

from gpuclusters.config import loader
from tests.components.recorder import Recorder, record
from tests.fixtures.made_up import own

PROJECT = Path(__file__).resolve().parents[2]
MADE_UP = "made up for this test"
SECRETS = {
    "gpu-clusters:kubeconfig": f"clusters: []  # {MADE_UP}",
    "gpu-clusters:ssh-private-key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MADE_UP}",
    "gpu-clusters:controller-ssh-private-key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MADE_UP}",
    "gpu-clusters:bmc-password": MADE_UP,
}
RKE2_USES = {"rke2": "gpu-clusters:ssh-private-key", "existing": "gpu-clusters:kubeconfig"}
"""By source of an rke2 cluster, the one secret of these that it has a use for; it warns of others."""


def declared(
    keys: Mapping[str, Any], *, preview: bool, more: Mapping[str, str] | None = None
) -> Recorder:
    """What the program declares for these keys of the stack file; for an update they are made one's own.

    `more` are secrets beside those that a stack of this type has here.
    """
    keys = keys if preview else own(keys)
    config = {
        f"gpu-clusters:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in keys.items()
    }

    secrets = SECRETS
    if keys["cluster-type"] == "gke":
        secrets = {}
    if keys["cluster-type"] == "rke2":
        used = RKE2_USES[keys["rke2"].get("kubernetes", {}).get("source", "rke2")]
        secrets = {used: SECRETS[used]}
    secrets = secrets | {f"gpu-clusters:{key}": value for key, value in (more or {}).items()}

    def program() -> None:
        pulumi.runtime.set_all_config({**config, **secrets}, list(secrets))
        loaded = loader.load(PROJECT)
        import_module(f"stacks.{loaded.cluster_type}").build(loaded.section, loaded.secrets)

    return record(program, preview=preview)
