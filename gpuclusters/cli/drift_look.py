"""`drift`: looks at everything at the same time, and joins what was found."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from caas.controllers.redfish import Redfish, RedfishError
from gpuclusters.cli import doctor_stack
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project, Session, open_session
from gpuclusters.cli.reach import admin_kubeconfig, ask_all, lab_inventory
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.drift_expectations import expected
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.inventory import Inventory
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import board
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import (
    AdapterError,
    DeniedError,
    HostKeyMismatchError,
    UnreachableError,
)
from gpuclusters.drift import cluster, engine, hosts, resources
from gpuclusters.drift.engine import View
from gpuclusters.drift.nodes import Expected
from gpuclusters.drift.report import Finding, Looked, Report, Told, Unseen, report
from gpuclusters.host.connect import SshCredentials, find_credentials
from gpuclusters.host.model import HostConnection
from gpuclusters.review.plan import KEPT
from gpuclusters.review.text import plural

_ENGINE = "the resources of the stack"
_STREAM = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "1", "PULUMI_SKIP_UPDATE_CHECK": "1"}
_MOST_EXCLUDED = 500
"""URNs on a command line; a stack of which more cannot be read has no plan worth knowing."""
_LAST_WORDS = 3
_UNREACHED = {"host.unreachable", "host.key-changed", "host.refuses"}


@dataclass(frozen=True, slots=True)
class Sight:
    session: Session
    inventory: Inventory | None
    secrets: doctor_stack.StackSecrets
    expected: Expected = field(default_factory=Expected)

    def secret(self, key: str, of_lab: str) -> str | None:
        """A secret of the stack, or what the lab's inventory names a file of."""
        if self.inventory is None:
            return self.secrets.values.get(key)
        path: Path = getattr(self.inventory, of_lab)
        return path.read_text(encoding="utf-8").strip()


def look(project: Project, stack: str, *, kubeconfig: Path | None, ignore: Sequence[str]) -> Report:
    """Look at a stack. Nothing is written: not to the state, not to a machine, not to the cluster."""
    session = open_session(project, stack)
    inventory = lab_inventory(project) if session.in_lab else None
    secrets, _ = doctor_stack.secrets(session)
    golden = inventory.golden_firmware if inventory else {}
    if isinstance(session.config.section, GkeConfig):
        # Nodes come and go by Google's hand; the proof among the resources says which are others now.
        view = view_of(session)
        told = list(_of_engine(view))
        return report(stack, told, ignore=ignore, plan=view.plan if view.planned else None)
    wanted = expected(session.config.section, golden)
    wanted = replace(wanted, others=wanted.others | frozenset(inventory.hosts if inventory else ()))
    sight = Sight(session, inventory, secrets, wanted)
    if sys.stderr.isatty():
        sys.stderr.write("looking at the stack's resources\n")
    view = view_of(session)
    with ThreadPoolExecutor(2) as pool:
        machines = pool.submit(lambda: list(_hosts(sight, view)))
        rest = pool.submit(lambda: list(_cluster(sight, view, kubeconfig)))
        told = [*_of_engine(view), *machines.result(), *rest.result()]
    return report(
        stack, without_repeats(told), ignore=ignore, plan=view.plan if view.planned else None
    )


def view_of(session: Session) -> View:
    """What the engine sees. Resources that cannot be read are left out of a second look, for the plan.

    A preview takes no lock and keeps nothing of what it refreshed.
    """
    first = _seen(session, ())
    if not first.unread or len(first.unread) > _MOST_EXCLUDED:
        return first
    excluded = [word for urn in first.unread for word in ("--exclude", urn)]
    return engine.merged(first, _seen(session, excluded))


def _seen(session: Session, more: Sequence[str]) -> View:
    words = ("preview", "--stack", session.stack, "--refresh", "--json", "--non-interactive", *more)
    # In a file: a pipe that nobody reads meanwhile would stop the engine once it is full.
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [*session.engine.command, *words],
            cwd=session.project.folder,
            env={**session.env, **_STREAM},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            return engine.read(process.stdout or ())
        except engine.EventsError as error:
            process.wait()
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines()
            last = [line.strip() for line in lines if line.strip()][-_LAST_WORDS:]
            return View(failure="; ".join(last) or str(error))


def _of_engine(view: View) -> Iterator[Told]:
    yield from resources.findings(view)
    yield Looked("resources", len(view.resources))
    for urn, why in view.unread.items():
        yield Unseen(f"resource {urn.rsplit('::', 1)[-1]}", why)
    if view.failure:
        what = "what a following `up` would do" if view.resources else _ENGINE
        yield Unseen(what, view.failure, "`gpu-clusters doctor` looks closer")
    elif not view.states:
        yield Unseen(_ENGINE, "the state has none; was `gpu-clusters up` run?")


def _hosts(sight: Sight, view: View) -> Iterator[Told]:
    ours = (one for one in view.states.values() if one.type.startswith(KEPT))
    machines = hosts.connections(one.inputs for one in ours)
    if not machines:
        return
    try:
        key = sight.secret("ssh-private-key", "ssh_private_key")
        credentials = find_credentials(key, sight.session.env)
        credentials.keys()
    except AdapterError as error:
        yield Unseen("all machines", error.problem, error.remedy)
        return
    yield from of_machines(machines, credentials)
    section = sight.session.config.section
    if isinstance(section, CaasConfig) and sight.expected.firmware:
        yield from asyncio.run(_firmware(section, sight))


def of_machines(
    machines: Mapping[str, HostConnection], credentials: SshCredentials
) -> Iterator[Told]:
    """Machines in parallel; one that does not answer is a finding, and hides nothing of the others."""
    seen = 0
    for name, said in ask_all(machines, credentials, lambda _, host: hosts.look(host)):
        if not isinstance(said, AdapterError):
            seen += 1
            yield from hosts.findings(name, said)
            continue
        if isinstance(said, UnreachableError | HostKeyMismatchError | DeniedError):
            yield hosts.unreached(name, said)
        yield Unseen(f"machine {name}", said.problem, said.remedy)
    yield Looked("machines", seen)


def without_repeats(told: Sequence[Told]) -> Iterator[Told]:
    """With one line for a machine that was not reached, instead of one for each resource on it."""
    away = [t.where for t in told if isinstance(t, Finding) and t.id in _UNREACHED]
    counts: Counter[str] = Counter()
    for one in told:
        if isinstance(one, Unseen) and one.what.startswith("resource "):
            host = next((h for h in away if one.why.startswith(f"{h} (")), None)
            if host is not None:
                counts[host] += 1
                continue
        yield one
    for host, count in sorted(counts.items()):
        yield Unseen(f"{plural(count, 'resource')} on {host}", "the machine was not reached")


async def _firmware(config: CaasConfig, sight: Sight) -> list[Told]:
    """What the management controllers say of the firmware of every machine."""
    password = sight.secret("bmc-password", "bmc_password")
    if password is None:
        why = "the stack's secret bmc-password is not set, or cannot be opened"
        return [Unseen("firmware", why)]
    asked = (_inventory(config, node, sight, password) for node in config.nodes)
    parts = [part for part in await asyncio.gather(*asked) if part is not None]
    seen = sum(not any(isinstance(one, Unseen) for one in part) for part in parts)
    return [*chain.from_iterable(parts), Looked("firmware inventories", seen)]


async def _inventory(
    config: CaasConfig, node: Node, sight: Sight, password: str
) -> list[Told] | None:
    """What one management controller says; None where none is known."""
    known = sight.inventory.hosts.get(node.name) if sight.inventory is not None else node
    if known is None or (bmc := known.bmc) is None:
        return None
    modules, accepted = tuple(board(config, node).gpus), sight.expected.firmware
    redfish = Redfish(str(bmc.url), bmc.user, password, bmc.certificate)
    seen: dict[str, str | None] = {}
    try:
        for module in modules:
            seen |= await redfish.inventory(module, list(accepted))
    except RedfishError as error:
        return [Unseen(f"firmware of {node.name}", str(error))]
    finally:
        await redfish.close()
    return list(hosts.firmware(node.name, modules, accepted, seen))


def _cluster(sight: Sight, view: View, stated: Path | None) -> Iterator[Told]:
    try:
        text = _kubeconfig(sight, stated)
    except UsageError as error:
        yield Unseen(cluster.ALL, str(error))
        return
    # Its API is on loopback of its host, as a rule.
    way = "`gpu-clusters tunnel -- gpu-clusters drift` opens the way to its API"
    section = sight.session.config.section
    tunnelled = isinstance(section, UsernetesConfig) and sight.inventory is None
    for one in cluster.look(text, view, sight.expected):
        away = tunnelled and isinstance(one, Unseen) and one.what == cluster.ALL
        yield replace(one, do=way) if away and isinstance(one, Unseen) else one


def _kubeconfig(sight: Sight, stated: Path | None) -> str:
    """The one that was named, the lab's, the one that the stack made, its secret, else the usual."""
    if stated is not None:
        return admin_kubeconfig(stated)
    if sight.inventory is not None:
        return sight.inventory.kubeconfig.read_text(encoding="utf-8")
    session = sight.session
    words = ("stack", "output", "kubeconfig", "--show-secrets", "--non-interactive")
    done = session.run(*words, "--stack", session.stack)
    made = done.stdout if done.returncode == 0 else ""
    if made.strip():
        # The real CLI prints a text as it is, unless it was asked for JSON.
        return str(json.loads(made)) if made.lstrip().startswith('"') else made
    return sight.secrets.values.get("kubeconfig") or admin_kubeconfig(None)
