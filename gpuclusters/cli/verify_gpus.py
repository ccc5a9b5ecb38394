"""`verify` of rke2 and usernetes clusters: climb the ladder of proofs on their hosts and in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpuclusters.cli import reach
from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.project import Project
from gpuclusters.config import rke2_plan, usernetes_plan
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.converge import StderrReporter, SystemClock
from gpuclusters.core.errors import AdapterError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.kube.jobs import ClusterJobs
from gpuclusters.metrics import selection
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring
from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts, ladder_run, manifests
from gpuclusters.proof import run as proof_run
from gpuclusters.proof.checks import (
    CLUSTER_RUNGS,
    HOST_RUNGS,
    Check,
    CheckLevel,
    Level,
)
from gpuclusters.proof.evidence import About, LadderEvidence, ProofEvidence
from gpuclusters.proof.model import LadderInputs, ProofInputs

SETTLE_SECONDS = 60
"""A cluster that is verified should be settled: nodes are not waited for as long as by `up`."""
_AT_ONCE = 16
Head = Callable[[str, Sequence[str]], About]
"""Makes the head of the evidence, from the API server's version and remarks."""
M = TypeVar("M", bound=BaseModel)


def rke2(
    project: Project, config: Rke2Config, about: Head, *, kubeconfig: Path | None, level: str | None
) -> ProofEvidence:
    """Climb, and look at the metrics where the stack has monitoring."""
    text = reach.kubeconfig(project, config, kubeconfig)
    wanted = rke2_inputs(config, text, rke2_level(config, level))
    cluster, texts = ClusterJobs(text), manifests.texts()
    found = proof_run.run(wanted, cluster, SystemClock(), StderrReporter(), texts)
    checks = list(found.checks)
    kind = rke2_plan.monitoring(config)
    if kind is not Monitoring.NONE:
        operator, namespace = wanted.operator_namespace, NAMES[kind].namespace
        checks += selection.look(cluster, operator_namespace=operator, namespace=namespace)
    images = {test.value: getattr(wanted.test(test), "image", None) for test in wanted.tests}
    return ProofEvidence(
        about=about(cluster.version(), found.remarks),
        level=wanted.level.value,
        checks=checks,
        nodes=found.observed,
        images={test: image for test, image in images.items() if image},
        programs=_digests(texts),
    )


def usernetes(
    project: Project,
    stack: str,
    config: UsernetesConfig,
    about: Head,
    *,
    kubeconfig: Path | None,
    level: str | None,
) -> LadderEvidence:
    """Climb, 1 to 4 on the hosts and 5 to 9 in the cluster; a rung that does not hold ends the climb."""
    highest = rung(config, level)
    text = reach.kubeconfig(project, config, kubeconfig)
    connections, credentials = reach.reach(project, stack, config)
    checks = list(on_hosts(config, connections, credentials, highest))
    cluster = ClusterJobs(text)
    wanted = usernetes_inputs(config, text, max(highest, CLUSTER_RUNGS[0]))
    texts = manifests.texts(manifests.LADDER_PROGRAMS)
    remarks: Sequence[str] = ()
    observed: Mapping[str, Mapping[str, str]] = {}
    if not proof.proven(checks):
        checks += proof.above(HOST_RUNGS[-1], highest, "the hosts' rungs do not hold")
    elif highest >= CLUSTER_RUNGS[0]:
        found = ladder_run.run(wanted, cluster, SystemClock(), StderrReporter(), texts)
        checks += found.checks
        remarks, observed = found.remarks, found.observed
    return LadderEvidence(
        about=about(cluster.version(), remarks),
        level=highest.level,
        checks=checks,
        nodes=observed,
        images={"training": wanted.training.image} if wanted.training else {},
        programs=_digests(texts),
    )


def _digests(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}


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


def rke2_inputs(config: Rke2Config, kubeconfig: str, level: Level) -> ProofInputs:
    """What is to be shown about the cluster of a configuration."""
    values = rke2_plan.proof_arguments(config, level)
    return _inputs(ProofInputs, config.name, {**values, "kubeconfig": kubeconfig})


def usernetes_inputs(config: UsernetesConfig, kubeconfig: str, highest: CheckLevel) -> LadderInputs:
    """What is to be shown about the cluster of a configuration."""
    values = usernetes_plan.arguments(config, highest)
    own = {"kubeconfig": kubeconfig, "settle_seconds": SETTLE_SECONDS}
    return _inputs(LadderInputs, config.name, {**values, **own})


def _inputs(model: type[M], name: str, values: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(values, by_name=True)
    except ValidationError as error:
        faults = (str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors())
        raise RunError(f"the GPUs of {name} cannot be proven: {'; '.join(faults)}") from error


def rke2_level(config: Rke2Config, stated: str | None) -> Level:
    """The highest level: as stated, `L2`, or the configuration's."""
    described = Level(config.proof.level)
    if stated is None:
        return described
    if stated.upper() not in list(Level):
        raise wrong_option(f"--level must be one of {', '.join(Level)} (got {stated!r})")
    level = Level(stated.upper())
    if level > described:
        raise UsageError(
            f"--level {level} needs tests that the configuration does not describe (its proof.level is "
            f"{described}); write proof.level: {level} with their images"
        )
    return level


def rung(config: UsernetesConfig, stated: str | None) -> CheckLevel:
    """The highest rung: as stated, `7` or `R7`, or the configuration's."""
    if stated is None:
        return CheckLevel(config.proof.rung)
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
