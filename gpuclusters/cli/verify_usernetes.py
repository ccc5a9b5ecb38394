"""`verify` of a usernetes cluster: climb all rungs, 1 to 4 on the hosts and 5 to 9 in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from gpuclusters.cli import verify_hosts
from gpuclusters.cli.errors import RunError, wrong_option
from gpuclusters.cli.project import Project
from gpuclusters.cli.verify_hosts import admin_kubeconfig, lab_inventory
from gpuclusters.config import usernetes_plan
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.converge import StderrReporter, SystemClock
from gpuclusters.core.errors import AdapterError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.kube.jobs import ClusterJobs
from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts, ladder_run, manifests
from gpuclusters.proof.checks import CLUSTER_RUNGS, HOST_RUNGS, Check, CheckLevel
from gpuclusters.proof.evidence import About, LadderEvidence
from gpuclusters.proof.model import LadderInputs

SETTLE_SECONDS = 60
"""A cluster that is verified should be settled: nodes are not waited for as long as by `up`."""
_AT_ONCE = 16


def run(
    project: Project,
    stack: str,
    config: UsernetesConfig,
    about: Callable[[str, Sequence[str]], About],
    *,
    kubeconfig: Path | None,
    level: str | None,
) -> LadderEvidence:
    """Climb; a rung that does not hold ends the climb, and the rest is said not to have been tried."""
    highest = rung(config, level)
    text = (
        lab_inventory(project).kubeconfig.read_text(encoding="utf-8")
        if uses_lab(config)
        else admin_kubeconfig(kubeconfig)
    )
    connections, credentials = verify_hosts.reach(project, stack, config)
    checks = list(on_hosts(config, connections, credentials, highest))
    cluster = ClusterJobs(text)
    wanted = inputs(config, text, max(highest, CLUSTER_RUNGS[0]))
    texts = manifests.texts(manifests.LADDER_PROGRAMS)
    remarks: Sequence[str] = ()
    observed: Mapping[str, Mapping[str, str]] = {}
    if not proof.proven(checks):
        checks += proof.above(HOST_RUNGS[-1], highest, "the hosts' rungs do not hold")
    elif highest >= CLUSTER_RUNGS[0]:
        found = ladder_run.run(wanted, cluster, SystemClock(), StderrReporter(), texts)
        checks += found.checks
        remarks, observed = found.remarks, found.observed
    part = wanted.training
    return LadderEvidence(
        about=about(cluster.version(), remarks),
        level=highest.level,
        checks=checks,
        nodes=observed,
        images={"training": part.image} if part else {},
        programs={name: sha256(body.encode()).hexdigest() for name, body in texts.items()},
    )


def on_hosts(
    config: UsernetesConfig,
    connections: Mapping[str, HostConnection],
    credentials: SshCredentials,
    highest: CheckLevel,
) -> Sequence[Check]:
    """Rungs 1 to 4 of all hosts at once, rung by rung."""

    def look(name: str) -> list[Check]:
        host = SshHost(connections[name], credentials, connect_attempts=1)
        try:
            said = hosts.ask(host, config.account, highest)
        except AdapterError as error:
            return [proof.failed(CheckLevel.DRIVER, name, error.problem, error.remedy)]
        return hosts.judge(name, config.gpus.count, said, highest)

    with ThreadPoolExecutor(max(1, min(len(connections), _AT_ONCE))) as pool:
        found = [check for checks in pool.map(look, connections) for check in checks]
    return sorted(found, key=lambda check: check.level)


def inputs(config: UsernetesConfig, kubeconfig: str, highest: CheckLevel) -> LadderInputs:
    """What is to be shown about the cluster of a configuration."""
    try:
        return LadderInputs.model_validate(
            {
                **usernetes_plan.arguments(config, highest),
                "kubeconfig": kubeconfig,
                "settle_seconds": SETTLE_SECONDS,
            }
        )
    except ValidationError as error:
        said = "; ".join(
            str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors()
        )
        raise RunError(f"the GPUs of {config.name} cannot be proven: {said}") from error


def rung(config: UsernetesConfig, stated: str | None) -> CheckLevel:
    """The highest rung: as stated, `7` or `R7`, or the configuration's."""
    described = CheckLevel(config.proof.rung)
    if stated is None:
        return described
    number = stated.upper().removeprefix("R")
    known = [str(one.value) for one in CheckLevel]
    if number not in known:
        raise wrong_option(f"--level must be a rung, {known[0]} to {known[-1]} (got {stated!r})")
    wanted = CheckLevel(int(number))
    if wanted is CheckLevel.TRAINING and config.proof.training is None:
        raise wrong_option(
            "--level 9 needs the training, which the configuration does not describe; write "
            "proof.training and proof.rung: 9"
        )
    return wanted
