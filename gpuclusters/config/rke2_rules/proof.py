"""Row 44: what is to be proven can be, in the time there is."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import branch_of
from gpuclusters.config.fault import finding, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2_cluster import (
    NoMetrics,
    NotShared,
    ProofL0,
    ProofL1,
    ProofL4,
    RancherMonitoring,
    Rke2Config,
)
from gpuclusters.config.rke2_machines import architecture, driver_version, gpu_pools
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path

_DRIVER_BUILD_SECONDS = 1800


@rule(44, "rke2.proof-cuda")
def the_proofs_cuda_runs_on_the_driver(config: Rke2Config) -> Iterable[Finding]:
    for test in ("matmul", "load"):
        part = getattr(config.proof, test, None)
        if part is None:
            continue
        path: Path = ("proof", test, "cuda-major")
        for pool in gpu_pools(config):
            version = driver_version(config, pool.driver)
            newest = rke2_matrix.newest_cuda(branch_of(version))
            stated = rke2_matrix.matrix().cuda.get(part.cuda_major)
            if newest is not None and part.cuda_major > newest:
                yield finding(
                    path,
                    f"is newer than driver {version} of pool {pool.name} runs, which is CUDA {newest}",
                    show(part.cuda_major),
                    f"use an image with CUDA {newest}; older images run on newer drivers",
                )
            elif stated is not None and architecture(pool).is_before(stated.oldest):
                yield finding(
                    path,
                    f"has no code for the {architecture(pool)} GPUs of pool {pool.name}",
                    show(part.cuda_major),
                    f"use an image with CUDA {part.cuda_major - 1}",
                )


@rule(44, "rke2.proof-without-metrics")
def the_load_is_seen_by_somebody(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.proof, ProofL0 | ProofL1) and isinstance(config.metrics, NoMetrics):
        yield finding(
            ("metrics", "kind"),
            f"is none, and proof.level {config.proof.level} asks Prometheus whether it saw the load",
            '"none"',
            "write metrics: {kind: kube-prometheus-stack, …} or rancher, or proof.level: L1",
        )


@rule(44, "rke2.proof-without-exchange")
def there_is_something_to_exchange(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.proof, ProofL4):
        return
    if not any(pool.gpu is not None and pool.gpu.count > 1 for pool in config.pools):
        yield finding(
            ("proof", "level"),
            "measures what GPUs of a node exchange, and every node has one",
            '"L4"',
            "write L3",
        )


@rule(44, "rke2.proof-of-shared-gpus", level=Level.WARN)
def shared_gpus_are_not_judged(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.proof, ProofL0) and config.sharing.kind in ("time-slicing", "mps"):
        yield finding(
            ("proof", "level"),
            f"judges no rate where GPUs are shared by {config.sharing.kind}",
            show(config.proof.level),
            "prove the GPUs before you share them, or write L0",
        )


@rule(44, "rke2.timeout-too-short")
def there_is_time_enough(config: Rke2Config) -> Iterable[Finding]:
    ready = config.timeouts.ready_seconds
    builds = config.driver.source == "operator"
    if builds and ready < _DRIVER_BUILD_SECONDS:
        yield finding(
            ("timeouts", "ready-seconds"),
            "is less than a driver container takes, which builds for up to 20 minutes on every node",
            show(ready),
            f"write {_DRIVER_BUILD_SECONDS} or more",
        )
    slowest = 0 if isinstance(config.sharing, NotShared) else config.timeouts.mig_seconds
    if config.sharing.kind == "mig" and ready < slowest:
        yield finding(
            ("timeouts", "ready-seconds"),
            f"is less than mig-seconds, which is {slowest}: nothing is ready before the GPUs are cut",
            show(ready),
            f"write {slowest} or more",
        )


@rule(44, "rke2.not-in-lab")
def the_lab_can_do_it(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.hosts, LabHosts):
        return
    if isinstance(config.metrics, RancherMonitoring):
        yield finding(
            ("metrics", "kind"),
            "has no chart in the lab",
            show(config.metrics.kind),
            "write kube-prometheus-stack or none",
        )
    if not isinstance(config.proof, ProofL0 | ProofL1):
        yield finding(
            ("proof", "level"),
            "needs GPUs, and those of the lab are simulated",
            show(config.proof.level),
            "write L1 or L0",
        )
