"""`drift`: looks at everything at the same time, and joins what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuclusters.cli import doctor_stack, drift_cluster, drift_engine, drift_hosts
from gpuclusters.cli.drift_engine import Found
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project, Session, open_session
from gpuclusters.cli.verify_hosts import admin_kubeconfig
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.drift_expectations import expected
from gpuclusters.config.inventory import Inventory, InventoryError, read_inventory
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import AdapterError
from gpuclusters.drift import resources
from gpuclusters.drift.engine import View
from gpuclusters.drift.expected import Expected
from gpuclusters.drift.finding import Unseen
from gpuclusters.drift.hosts import connections
from gpuclusters.drift.report import Looked, Report, report
from gpuclusters.host.connect import find_credentials

_ENGINE = "the resources of the stack"


@dataclass(frozen=True, slots=True)
class Sight:
    """With what the look is taken."""

    session: Session
    inventory: Inventory | None
    secrets: doctor_stack.StackSecrets
    expected: Expected = field(default_factory=Expected)


def look(project: Project, stack: str, *, kubeconfig: Path | None, ignore: Sequence[str]) -> Report:
    """Look at a stack. Nothing is written: not to the state, not to a machine, not to the cluster."""
    session = open_session(project, stack)
    sight = _sight(session)
    drift_engine.say("looking at the stack's resources")
    view = drift_engine.view(session)
    found = _of_engine(view)
    with ThreadPoolExecutor(2) as pool:
        parts: list[Callable[[], Found]] = [
            lambda: _hosts(sight, view),
            lambda: _cluster(sight, view, kubeconfig),
        ]
        for part in pool.map(lambda one: one(), parts):
            found = found.joined(part)
    found = drift_hosts.without_repeats(found)
    return report(
        stack,
        found.findings,
        found.unseen,
        found.looked,
        ignore=ignore,
        plan=view.plan if view.planned else None,
    )


def _sight(session: Session) -> Sight:
    inventory: Inventory | None = None
    if session.in_lab:
        try:
            inventory = read_inventory(session.project.lab_folder)
        except InventoryError as error:
            raise UsageError(str(error)) from error
        if inventory is None:
            raise UsageError("the lab does not run; `gpu-clusters up` starts it")
    context = doctor_stack.Stack(session.project, session.stack, session.engine, session.env)
    secrets, _ = doctor_stack.secrets(context)
    golden = inventory.golden_firmware if inventory else {}
    wanted = expected(session.config.section, golden)
    return Sight(session, inventory, secrets, wanted)


def _of_engine(view: View) -> Found:
    unseen = [
        Unseen(f"resource {urn.rsplit('::', 1)[-1]}", why) for urn, why in view.unread.items()
    ]
    if view.failure:
        unseen.append(
            Unseen(
                _ENGINE if not view.resources else "what a following `up` would do",
                view.failure,
                "`gpu-clusters doctor` looks closer",
            )
        )
    if not view.states and not view.failure:
        unseen.append(Unseen(_ENGINE, "the state has none; was `gpu-clusters up` run?"))
    return Found(
        tuple(resources.findings(view)),
        tuple(unseen),
        (Looked("resources", len(view.resources)),),
    )


def _hosts(sight: Sight, view: View) -> Found:
    key = sight.secrets.values.get("ssh-private-key")
    if sight.inventory is not None:
        key = sight.inventory.ssh_private_key.read_text(encoding="utf-8")
    machines = connections(view)
    if not machines:
        return Found()
    try:
        credentials = find_credentials(key, sight.session.env)
        credentials.keys()
    except AdapterError as error:
        return Found(unseen=(Unseen("all machines", error.problem, error.remedy),))
    found = drift_hosts.look(machines, credentials)
    section = sight.session.config.section
    if isinstance(section, CaasConfig) and sight.expected.firmware:
        password = sight.secrets.values.get("bmc-password")
        if sight.inventory is not None:
            password = sight.inventory.bmc_password.read_text(encoding="utf-8").strip()
        found = found.joined(
            drift_hosts.firmware(section, sight.expected, sight.inventory, password)
        )
    return found


def _cluster(sight: Sight, view: View, stated: Path | None) -> Found:
    try:
        text = _kubeconfig(sight, stated)
    except UsageError as error:
        return Found(unseen=(Unseen(drift_cluster.ALL, str(error)),))
    others = frozenset(sight.inventory.hosts) if sight.inventory else frozenset()
    found = drift_cluster.look(text, view, sight.expected, others)
    if isinstance(sight.session.config.section, UsernetesConfig) and sight.inventory is None:
        # Its API is on loopback of its host, as a rule.
        way = "`gpu-clusters tunnel -- gpu-clusters drift` opens the way to its API"
        told = tuple(replace(u, do=way) if u.what == drift_cluster.ALL else u for u in found.unseen)
        return replace(found, unseen=told)
    return found


def _kubeconfig(sight: Sight, stated: Path | None) -> str:
    """The one that was named, the lab's, the one that the stack made, its secret, else the usual."""
    if stated is not None:
        return admin_kubeconfig(stated)
    if sight.inventory is not None:
        return sight.inventory.kubeconfig.read_text(encoding="utf-8")
    made = drift_engine.stack_output(sight.session, "kubeconfig")
    if made is not None:
        # The real CLI prints a text as it is, unless it was asked for JSON.
        return str(json.loads(made)) if made.lstrip().startswith('"') else made
    return sight.secrets.values.get("kubeconfig") or admin_kubeconfig(None)
