"""`gpu-clusters doctor`: what would be used, and what is missing, without changing anything."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from gpuclusters.cli import diagnosis, doctor_cluster, doctor_machines, doctor_stack
from gpuclusters.cli import doctor_workstation as workstation
from gpuclusters.cli import engine as engines
from gpuclusters.cli.diagnosis import Diagnosis, failure
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project, Stack
from gpuclusters.cli.report import Say, nothing, steps
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.inventory import (
    Inventory,
    InventoryError,
    read_inventory,
)
from gpuclusters.config.kubernetes import LabKubernetes
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.stack import StackConfig
from gpuclusters.config.usernetes import UsernetesConfig


def run(project: Project, stack: str, *, as_json: bool = False) -> int:
    """Print what was found; 0 if all is well, 1 with warnings, 2 if `up` would fail."""
    began = time.monotonic()
    with steps(Console(stderr=True, highlight=False), silent=as_json) as say:
        found = examine(project, stack, say)
    if as_json:
        sys.stdout.write(diagnosis.as_json(stack, found) + "\n")
    else:
        diagnosis.show(Console(highlight=False), found, time.monotonic() - began)
    return diagnosis.exit_code(found)


def examine(project: Project, stack: str, say: Say = nothing) -> list[Diagnosis]:
    """Look at everything; what does not depend on each other at the same time."""
    say("looking at this computer and the configuration")
    engine = _engine()
    config, found = doctor_stack.configuration(project, stack)
    in_lab = uses_lab(config.section) if config else None
    env = project.lab_environment() if in_lab else dict(os.environ)
    found = [*workstation.workstation(project, engine, in_lab=in_lab), *found]
    if config and in_lab:
        found += workstation.lab(project, env, config)
    if config is None:
        return found
    if isinstance(engine, UsageError):
        return found
    context = Stack(project, stack, engine, env)
    say("looking at the state, every machine and the cluster")
    with ThreadPoolExecutor(2) as pool:
        state = pool.submit(lambda: list(doctor_stack.backend(context)))
        outside = pool.submit(_outside, context, config)
        return [*found, *state.result(), *outside.result()]


def _engine() -> engines.Engine | UsageError:
    try:
        return engines.choose(may_fetch=False)
    except UsageError as error:
        return error


def _outside(context: Stack, config: StackConfig) -> list[Diagnosis]:
    """Secrets first, because they open machines and cluster; these two at the same time."""
    secrets, found = doctor_stack.secrets(context)
    try:
        inventory = read_inventory(context.project.lab_folder) if uses_lab(config.section) else None
    except InventoryError as error:
        fix = "`gpu-clusters lab start`"
        return [*found, failure(workstation.LAB, str(error), error.error_id, fix)]
    section = config.section
    found += doctor_stack.missing(context, section, secrets)
    with ThreadPoolExecutor(2) as pool:
        hosts = pool.submit(lambda: list(doctor_machines.of_stack(section, inventory, secrets)))
        cluster = pool.submit(lambda: list(_cluster(section, inventory, secrets)))
        return [*found, *hosts.result(), *cluster.result()]


def _cluster(
    config: CaasConfig | Rke2Config | UsernetesConfig,
    inventory: Inventory | None,
    secrets: doctor_stack.StackSecrets,
) -> Iterator[Diagnosis]:
    """That of a `caas` cluster; the others are looked at by their machines."""
    if not isinstance(config, CaasConfig):
        return
    if isinstance(config.kubernetes, LabKubernetes):
        kubeconfig = inventory.kubeconfig.read_text(encoding="utf-8") if inventory else None
    else:
        kubeconfig = secrets.values.get("kubeconfig")
    if kubeconfig is not None:
        others = frozenset(inventory.hosts if inventory else ())
        yield from doctor_cluster.cluster(config, kubeconfig, others)
