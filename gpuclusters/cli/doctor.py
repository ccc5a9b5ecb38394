"""`gpu-clusters doctor`: what would be used, and what is missing, without changing anything."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from rich.console import Console

from gpuclusters.cli import diagnosis, doctor_google, doctor_stack
from gpuclusters.cli import engine as engines
from gpuclusters.cli.diagnosis import (
    Diagnosis,
    failure,
    of_findings,
    shortened,
    unreachable,
    warning,
    well,
)
from gpuclusters.cli.doctor_stack import LAB, StackSecrets
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project, Stack
from gpuclusters.cli.reach import ask_all, connection
from gpuclusters.cli.report import Say, nothing, steps
from gpuclusters.compat import known_errors
from gpuclusters.compat.known_errors import KnownError
from gpuclusters.config import rke2_plan, usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig, uses_lab
from gpuclusters.config.drift_expectations import expected
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.inventory import Inventory, InventoryError, read_inventory, resolve_machines
from gpuclusters.config.kubernetes import LabKubernetes
from gpuclusters.config.plan import expects, namespace
from gpuclusters.config.rke2_cluster import FoundCluster, HostDriver, MadeCluster, machine_names
from gpuclusters.config.secrets import wrong
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.container_api.container import EVENT
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Finding, Level
from gpuclusters.drift import nodes
from gpuclusters.drift.report import Finding as Drifted
from gpuclusters.driver import decide as driver
from gpuclusters.driver.host import inspect
from gpuclusters.gpu_operator import preflight
from gpuclusters.gpu_operator.preflight import OperatorPreflightInputs
from gpuclusters.host.connect import find_credentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.preflight.decide import judge, of_level, stage_of
from gpuclusters.preflight.host import read_facts
from gpuclusters.preflight.model import Expects, HostFacts, Stage
from gpuclusters.rke2 import decide as rke2
from gpuclusters.rke2.host import inspect as inspect_rke2
from gpuclusters.rke2.model import LiveHost
from gpuclusters.rke2.releases import Role, parse_version
from gpuclusters.rootless import decide as rootless
from gpuclusters.rootless.host import RootlessCapability
from gpuclusters.rootless.model import RootlessHostInputs
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD

AREA = "cluster"
_ADMISSION = "admissionregistration.k8s.io"
Object = Mapping[str, Any]
_RIGHTS: tuple[Mapping[str, str], ...] = (
    {"verb": "create", "group": "", "resource": "namespaces"},
    {"verb": "create", "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions"},
    {"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    {"verb": "bind", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    {"verb": "create", "group": "node.k8s.io", "resource": "runtimeclasses"},
    {"verb": "create", "group": _ADMISSION, "resource": "validatingadmissionpolicies"},
    {"verb": "patch", "group": "", "resource": "nodes"},
)


def cluster(
    config: CaasConfig, kubeconfig: str, others: frozenset[str] = frozenset()
) -> Iterator[Diagnosis]:
    """Whether the API server answers, lets us do what `up` does, and has the nodes (but `others`)."""
    objects = KubernetesObjects(kubeconfig)
    try:
        yield from _account(objects)
        if objects.get(NAMESPACE, config.programs.namespace) is None:
            yield well(AREA, "nothing of this stack is in it yet; `up` brings it")
            return
        found = _nodes(config, objects.list(NODE), objects.list(GPU_LEASE), others)
        theirs = [namespace(config, tenant) for tenant in config.tenants]
        events, pods = (
            [one for where in theirs for one in objects.list(kind, where)] for kind in (EVENT, POD)
        )
    except AdapterError as error:
        yield unreachable(AREA, error)
        return
    yield from found
    yield from _containers(events, pods)


def _account(objects: KubernetesObjects) -> Iterator[Diagnosis]:
    yield well(AREA, f"Kubernetes {objects.version()} at {objects.target}")
    forbidden = [right for right in _RIGHTS if not objects.may_we(right)]
    if forbidden:
        shown = ", ".join(f"{right['verb']} {right['resource']}" for right in forbidden)
        yield failure(AREA, f"the kubeconfig's account may not {shown}", "doctor.kubeconfig-rights")
    else:
        yield well(AREA, "the account may do what `up` does")


def found_cluster(config: FoundCluster, kubeconfig: str) -> Iterator[Diagnosis]:
    """Whether the API server of a cluster that was there answers, and what is in the operator's way."""
    objects = KubernetesObjects(kubeconfig)
    inputs = OperatorPreflightInputs.model_validate(
        {"cluster": config.name, "kubeconfig": kubeconfig, **rke2_plan.preflight(config)},
        by_name=True,
    )
    try:
        yield from _account(objects)
        found = preflight.findings(preflight.read(inputs, objects), inputs)
    except AdapterError as error:
        yield unreachable(AREA, error)
        return
    yield from of_findings(AREA, found)
    if not found:
        fit = f"{len(inputs.nodes)} nodes with GPUs are fit for GPU Operator {inputs.version}"
        yield well(AREA, fit)


def _containers(events: Sequence[Object], pods: Sequence[Object]) -> Iterator[Diagnosis]:
    """What tenants' containers that exist say, each cause once for all of them."""
    found: dict[KnownError, dict[str, None]] = {}
    for at, kind, said in _said(events, pods):
        error = known_errors.explain(kind, said)
        if error is not None:
            found.setdefault(error, {})[at] = None
    for error, names in found.items():
        yield warning(AREA, f"{shortened([*names])}: {error.cause}", error.code, error.remedy)


def _said(events: Sequence[Object], pods: Sequence[Object]) -> Iterator[tuple[str, str, str]]:
    """Where something was said, of what kind it is, and the words."""
    living = {f"{p['metadata']['namespace']}/{p['metadata']['name']}": p for p in pods}
    for event in events:
        about = event.get("involvedObject") or {}
        at = f"{about.get('namespace')}/{about.get('name')}"
        if event.get("type") == "Warning" and at in living:
            yield at, "container", event.get("message") or ""
    for at, pod in living.items():
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in (status.get("state") or {}, status.get("lastState") or {}):
                yield at, "guest", (state.get("terminated") or {}).get("message") or ""


def _nodes(
    config: CaasConfig, live: Sequence[Object], leases: Sequence[Object], others: frozenset[str]
) -> Iterator[Diagnosis]:
    """Nodes that are not as declared, each difference once for all of them."""
    wanted = expected(config, {})
    wanted = replace(wanted, others=wanted.others | others)
    found = list(nodes.findings(wanted, live, nodes.withheld(leases)))
    same: dict[tuple[str, str, str], list[Drifted]] = {}
    for one in found:
        same.setdefault((one.id, one.declared, one.found), []).append(one)
    for (code, declared, said), some in same.items():
        names = [one.where for one in some]
        what = f"{some[0].title[0].lower()}{some[0].title[1:]} ({said}; declared: {declared})"
        fix = some[0].remedy.replace(names[0], "NODE") if len(names) > 1 else some[0].remedy
        yield warning(AREA, f"{shortened(names)}: {what}", code, fix)
    fine = len({node.name for node in config.nodes} - {one.where for one in found})
    if fine:
        yield well(AREA, f"{fine} of {len(config.nodes)} nodes are as declared, with all GPUs")


CREDENTIALS = "credentials"
_START = "`gpu-clusters lab start`"


@dataclass(frozen=True, slots=True)
class Seen:
    findings: Sequence[Finding]
    summary: str = ""
    """What it is, in a few words; empty where something keeps it from being that."""
    machine_id: str = ""


Look = Callable[[SshHost], Seen]
"""At one machine; raises AdapterError."""


def of_stack(
    section: ClusterConfig, inventory: Inventory | None, secrets: StackSecrets
) -> Iterator[Diagnosis]:
    """The machines that exist already, or are simulated; those on Google Cloud the state alone knows."""
    if isinstance(section, FoundCluster):
        yield well(AREA, "existed before this stack: no machine is checked over SSH")
        return
    hosts = section.hosts
    if hosts is None:
        return
    key, source = secrets.values.get("ssh-private-key"), ""
    if isinstance(hosts, GcpHosts):
        yield from _key_of_google(section, key)
        return
    if isinstance(hosts, LabHosts):
        if inventory is None:
            return  # the lab does not run, which was said
        key, source = inventory.ssh_private_key.read_text(encoding="utf-8"), "the lab"
    elif not secrets.readable:
        return
    looks = _looks(section)
    try:
        resolved = resolve_machines(list(looks), hosts, inventory)
    except InventoryError as error:
        yield failure(LAB, str(error), error.error_id, _START)
        return
    found = [(connection(host), looks[name]) for name, host in resolved.items() if host is not None]
    yield from machines(found, key, source)


def _key_of_google(section: ClusterConfig, secret: str | None) -> Iterator[Diagnosis]:
    """The key that is to open machines which the stack makes. The form of the secret was looked at."""
    try:
        found = find_credentials(secret)
        found.keys()
    except AdapterError as error:
        yield unreachable(CREDENTIALS, error)
        return
    text = None if secret else found.private_key
    if text and (fault := wrong(section, "ssh-private-key", text)):
        yield failure(CREDENTIALS, f"the key of {found.source} {fault.problem}", fault.code)
    else:
        yield well(CREDENTIALS, f"SSH key from {found.source}")


def _looks(section: ClusterConfig) -> Mapping[str, Look]:
    if isinstance(section, CaasConfig):
        manager = str(section.service_vm.bind_address)
        return {node.name: caas_host(expects(section, node), manager) for node in section.nodes}
    if isinstance(section, UsernetesConfig):
        return dict.fromkeys(usernetes_plan.machine_names(section), usernetes_host(section))
    if isinstance(section, MadeCluster):
        return {name: rke2_host(section, name) for name in machine_names(section)}
    return {}


def machines(
    found: Sequence[tuple[HostConnection, Look]], private_key: str | None, source: str = ""
) -> Iterator[Diagnosis]:
    try:
        credentials = find_credentials(private_key)
        credentials.keys()
    except AdapterError as error:
        yield unreachable(CREDENTIALS, error)
        return
    yield well(CREDENTIALS, f"SSH key from {source or credentials.source}")
    looks = {reached.host: look for reached, look in found}
    ids: dict[str, str] = {}
    for name, seen in ask_all(
        {reached.host: reached for reached, _ in found},
        credentials,
        lambda name, host: looks[name](host),
    ):
        if isinstance(seen, AdapterError):
            yield failure(name, seen.problem, seen.error_id, seen.remedy)
            continue
        if seen.summary:
            yield well(name, seen.summary)
        yield from of_findings(name, seen.findings)
        other = ids.setdefault(seen.machine_id, name) if seen.machine_id else name
        if other != name:
            text = f"is the same machine as {other} (machine-id {seen.machine_id})"
            cloned = "`rm /etc/machine-id; systemd-machine-id-setup` on one"
            fix = f"correct the address of one; if both were cloned from one image, {cloned}"
            yield failure(name, text, "doctor.same-machine", fix)


def caas_host(wanted: Expects, fabric_manager: str | None) -> Look:
    """A host of virtual machines: what the preflight finds."""

    def look(host: SshHost) -> Seen:
        facts: HostFacts = read_facts(host, wanted.functions, fabric_manager=fabric_manager)
        stage = stage_of(facts, wanted)
        found = judge(facts, wanted, stage)
        state = "prepared" if stage is Stage.PREPARED else "bare, can be prepared"
        there = sum(address in facts.functions for address in wanted.gpus.values())
        said = f"{state}: {there} GPUs, {facts.memory_kib // 2**20} GiB, Linux {facts.kernel}"
        return Seen(found, "" if of_level(Level.BLOCK, found) else said, facts.machine_id)

    return look


def rke2_host(config: MadeCluster, name: str) -> Look:
    """A host of RKE2: its release, and the driver where its pool has GPUs."""
    counts = (pool.gpu.count for pool in config.pools if pool.gpu and name in pool.nodes)
    count = next(counts, 0)

    def look(host: SshHost) -> Seen:
        live = inspect_rke2(host, [])
        found = [*_of_rke2(config, name, live)]
        said = f"RKE2 {live.version}" if live.version else "bare, can be prepared"
        if count:
            gpus = inspect(host)
            found += driver.gpu_count(len(gpus.gpu), count, seen_by="the PCI bus")
            found += driver.running(gpus, own=isinstance(config.driver, HostDriver))
            said += f", {len(gpus.gpu)} GPUs, driver {gpus.loaded or 'none yet'}"
        return Seen(found, "" if found else said)

    return look


def _of_rke2(config: MadeCluster, name: str, live: LiveHost) -> Iterator[Finding]:
    """What `up` would find on a machine, and what it would put right."""
    role = Role.SERVER if name in config.servers else Role.AGENT
    yield from rke2.machine(live, selinux=config.selinux)
    if live.version:
        yield from rke2.release(live, parse_version(config.version))
        yield from rke2.unit(role, live)
    elif not live.owner:
        yield from rke2.bare_machine(role, live)
    yield from rke2.certificate(role, live)


def usernetes_host(config: UsernetesConfig) -> Look:
    """A host with rootless Docker; nothing more is said while `up` has to install the driver first."""
    versions = usernetes_plan.versions(config)
    installs_driver = usernetes_plan.driver(config) is not None

    def look(host: SshHost) -> Seen:
        inputs = RootlessHostInputs(
            connection=host.connection,
            account=config.account,
            gpus=config.gpus.count,
            docker=versions.docker,
            container_toolkit=versions.container_toolkit,
            sudo=usernetes_plan.uses_sudo(config),
            ports=usernetes_plan.tcp_ports(config),
        )
        live = RootlessCapability(inputs, host).observe()
        if installs_driver and not live.module:
            return Seen((), "no driver yet, can be prepared")
        found = list(rootless.findings(inputs, live))
        if blocking := of_level(Level.BLOCK, found):
            return Seen(blocking)
        gpus = f"{len(live.gpu)} GPUs"
        if rootless.is_absent(inputs, live):
            return Seen((), f"driver {live.module}, {gpus}, can be prepared")
        said = f"rootless Docker {live.docker_info.version}, {gpus}, driver {live.module}"
        return Seen(found, "" if found else said)

    return look


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
    engine: engines.Engine | UsageError
    try:
        engine = engines.choose(may_fetch=False)
    except UsageError as error:
        engine = error
    config, found = doctor_stack.configuration(project, stack)
    in_lab = uses_lab(config.section) if config else None
    env = project.lab_environment() if in_lab else dict(os.environ)
    found = [*doctor_stack.workstation(project, engine, in_lab=in_lab), *found]
    if config and in_lab:
        found += doctor_stack.lab(project, env, config)
    if config is None or isinstance(engine, UsageError):
        return found
    context = Stack(project, stack, engine, env)
    say("looking at the state, every machine and the cluster")
    return found + _both(
        partial(doctor_stack.backend, context), partial(_outside, context, config.section)
    )


def _both(*looks: Callable[[], Iterable[Diagnosis]]) -> list[Diagnosis]:
    """What each tells, in their order; they look at the same time."""
    with ThreadPoolExecutor(len(looks)) as pool:
        return list(chain.from_iterable(pool.map(lambda look: list(look()), looks)))


def _outside(context: Stack, section: ClusterConfig) -> Iterator[Diagnosis]:
    """Secrets first, because they open machines and cluster; these two at the same time."""
    secrets, found = doctor_stack.secrets(context)
    yield from found
    try:
        inventory = read_inventory(context.project.lab_folder) if uses_lab(section) else None
    except InventoryError as error:
        yield failure(LAB, str(error), error.error_id, _START)
        return
    yield from doctor_stack.unfit(context, section, secrets)
    if isinstance(section, GkeConfig):
        yield from doctor_google.cluster(context, section)
        return
    if isinstance(section, MadeCluster | UsernetesConfig) and isinstance(section.hosts, GcpHosts):
        yield from doctor_google.machines(context, section, section.hosts)
    yield from _both(
        partial(of_stack, section, inventory, secrets),
        partial(_cluster, section, inventory, secrets),
    )


def _cluster(
    config: ClusterConfig, inventory: Inventory | None, secrets: StackSecrets
) -> Iterator[Diagnosis]:
    """That of a `caas` cluster, or one that was there; the others are looked at by their machines."""
    if isinstance(config, FoundCluster) and (text := secrets.values.get("kubeconfig")):
        yield from found_cluster(config, text)
    if not isinstance(config, CaasConfig):
        return
    if isinstance(config.kubernetes, LabKubernetes):
        kubeconfig = inventory.kubeconfig.read_text(encoding="utf-8") if inventory else None
    else:
        kubeconfig = secrets.values.get("kubeconfig")
    if kubeconfig is not None:
        others = frozenset(inventory.hosts if inventory else ())
        yield from cluster(config, kubeconfig, others)
