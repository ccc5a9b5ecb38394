"""`verify` of an rke2 cluster: climb the ladder of proofs, and look whether its metrics reach anybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.project import Project
from gpuclusters.cli.verify_hosts import admin_kubeconfig, lab_inventory
from gpuclusters.config import rke2_plan
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.core.converge import StderrReporter, SystemClock
from gpuclusters.kube.jobs import ClusterJobs
from gpuclusters.metrics import monitoring_stack, selection
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring
from gpuclusters.proof import run as proof_run
from gpuclusters.proof.checks import LEVEL_OF, Level
from gpuclusters.proof.evidence import About, ProofEvidence
from gpuclusters.proof.manifests import texts as programs
from gpuclusters.proof.model import ProofInputs


def run(
    project: Project,
    config: Rke2Config,
    about: Callable[[str, Sequence[str]], About],
    *,
    kubeconfig: Path | None,
    level: str | None,
) -> ProofEvidence:
    """Climb, and look at the metrics where the stack has monitoring."""
    text = (
        lab_inventory(project).kubeconfig.read_text(encoding="utf-8")
        if uses_lab(config)
        else admin_kubeconfig(kubeconfig)
    )
    wanted = inputs(config, text, _level(config, level))
    cluster = ClusterJobs(text)
    texts = programs()
    found = proof_run.run(wanted, cluster, SystemClock(), StderrReporter(), texts)
    checks = list(found.checks)
    kind = rke2_plan.monitoring(config)
    if kind is not Monitoring.NONE:
        checks += selection.look(
            cluster,
            operator_namespace=wanted.operator_namespace,
            namespace=NAMES[kind].namespace,
        )
    images = {test.value: getattr(wanted.test(test), "image", None) for test in wanted.tests}
    return ProofEvidence(
        about=about(cluster.version(), found.remarks),
        level=wanted.level.value,
        checks=checks,
        nodes=found.observed,
        images={test: image for test, image in images.items() if image},
        programs={name: sha256(text.encode()).hexdigest() for name, text in texts.items()},
    )


def inputs(config: Rke2Config, kubeconfig: str, level: Level) -> ProofInputs:
    """What is to be shown about the cluster of a configuration."""
    tests = rke2_plan.proof_tests(config)
    kept = {name: part for name, part in tests.items() if _needed(name, level)}
    try:
        return ProofInputs.model_validate(
            {
                "cluster": config.name,
                "kubeconfig": kubeconfig,
                "level": level,
                "nodes": [node.model_dump() for node in rke2_plan.proof_nodes(config)],
                "namespace": config.proof.namespace,
                **kept,
                "operator_namespace": config.operator.namespace,
                "prometheus": monitoring_stack.prometheus(rke2_plan.monitoring(config)),
                "tolerations": rke2_plan.proof_tolerations(config),
                "driver": rke2_plan.driver_of_all(config),
                "operator": config.operator.version,
                "timeout_seconds": config.timeouts.proof_seconds,
                "simulated": uses_lab(config),
            },
            by_name=True,
        )
    except ValidationError as error:
        said = "; ".join(
            str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors()
        )
        raise RunError(f"the GPUs of {config.name} cannot be proven: {said}") from error


def _level(config: Rke2Config, stated: str | None) -> Level:
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


def _needed(test: str, level: Level) -> bool:
    return any(one.value == test and of <= level for one, of in LEVEL_OF.items())
