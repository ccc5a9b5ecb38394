"""How `verify` reaches the cluster of a stack."""

from __future__ import annotations

import os
from pathlib import Path

from gpuclusters.cli.errors import LabNotRunningError, UsageError
from gpuclusters.cli.project import Project
from gpuclusters.config.inventory import Inventory, read_inventory


def lab_inventory(project: Project) -> Inventory:
    """What the running lab offers.

    Raises:
        UsageError: it does not run.
    """
    inventory = read_inventory(project.lab_folder)
    if inventory is None:
        raise LabNotRunningError("the lab does not run; start it with `make up`")
    return inventory


def admin_kubeconfig(stated: Path | None) -> str:
    """Text of an administrator's kubeconfig: the one that is named, else $KUBECONFIG, else the usual place.

    Raises:
        UsageError: it cannot be read.
    """
    path = stated or Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the kubeconfig {path} cannot be read ({error.strerror}); name another with --kubeconfig"
        ) from error
