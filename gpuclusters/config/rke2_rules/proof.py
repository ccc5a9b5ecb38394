"""Row 44: what is to be proven can be, in the time there is."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.fault import Flaw, Path, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_machines import architecture, driver_version, gpu_pools
from gpuclusters.config.rke2_cluster_metrics import NoMetrics, RancherMonitoring
from gpuclusters.config.rke2_cluster_proof import ProofL0, ProofL1, ProofL4
from gpuclusters.config.rke2_cluster_sharing import NotShared
from gpuclusters.config.rules.rule import Severity, rule
from gpuclusters.domain import rke2_matrix
from gpuclusters.domain.rke2_matrix import branch_of

_DRIVER_BUILD_SECONDS = 1800


@rule(44, needs=["proof", "driver", "operator", "pools"])
def the_proofs_cuda_runs_on_the_driver(config: Rke2Config) -> Iterable[Flaw]:
    """An image of a newer CUDA does not start on an older driver, and CUDA 13 knows no Volta."""
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
                yield Flaw(
                    path,
                    f"is newer than driver {version} of pool {pool.name} runs, which is CUDA {newest}",
                    show(part.cuda_major),
                    f"use an image with CUDA {newest}; older images run on newer drivers",
                )
            elif stated is not None and architecture(pool).is_before(stated.oldest):
                yield Flaw(
                    path,
                    f"has no code for the {architecture(pool)} GPUs of pool {pool.name}",
                    show(part.cuda_major),
                    f"use an image with CUDA {part.cuda_major - 1}",
                )


@rule(44, needs=["proof", "metrics"])
def the_load_is_seen_by_somebody(config: Rke2Config) -> Iterable[Flaw]:
    """From L2 on a load has to show in Prometheus, which has to be there."""
    if not isinstance(config.proof, ProofL0 | ProofL1) and isinstance(config.metrics, NoMetrics):
        yield Flaw(
            ("metrics", "kind"),
            f"is none, and proof.level {config.proof.level} asks Prometheus whether it saw the load",
            '"none"',
            "write metrics: {kind: kube-prometheus-stack, …} or rancher, or proof.level: L1",
        )


@rule(44, needs=["proof", "sharing", "pools"])
def there_is_something_to_exchange(config: Rke2Config) -> Iterable[Flaw]:
    """all_reduce is between whole GPUs of a node; one GPU, or slices, exchange nothing."""
    if not isinstance(config.proof, ProofL4):
        return
    if not any(pool.gpu is not None and pool.gpu.count > 1 for pool in config.pools):
        yield Flaw(
            ("proof", "level"),
            "measures what GPUs of a node exchange, and every node has one",
            '"L4"',
            "write L3",
        )


@rule(44, needs=["proof", "sharing"], severity=Severity.WARNING)
def shared_gpus_are_not_judged(config: Rke2Config) -> Iterable[Flaw]:
    """Rates of GPUs that are cut or shared are no rates of the product: the floors do not count for them."""
    if not isinstance(config.proof, ProofL0) and config.sharing.kind in ("time-slicing", "mps"):
        yield Flaw(
            ("proof", "level"),
            f"judges no rate where GPUs are shared by {config.sharing.kind}",
            show(config.proof.level),
            "prove the GPUs before you share them, or write L0",
        )


@rule(44, needs=["timeouts", "driver", "sharing"])
def there_is_time_enough(config: Rke2Config) -> Iterable[Flaw]:
    """A driver container may take 20 minutes by its own probe, before anything else becomes ready."""
    ready = config.timeouts.ready_seconds
    builds = config.driver.source == "operator"
    if builds and ready < _DRIVER_BUILD_SECONDS:
        yield Flaw(
            ("timeouts", "ready-seconds"),
            "is less than a driver container takes, which builds for up to 20 minutes on every node",
            show(ready),
            f"write {_DRIVER_BUILD_SECONDS} or more",
        )
    slowest = 0 if isinstance(config.sharing, NotShared) else config.timeouts.mig_seconds
    if config.sharing.kind == "mig" and ready < slowest:
        yield Flaw(
            ("timeouts", "ready-seconds"),
            f"is less than mig-seconds, which is {slowest}: nothing is ready before the GPUs are cut",
            show(ready),
            f"write {slowest} or more",
        )


@rule(44, needs=["proof", "metrics", "hosts"])
def the_lab_can_do_it(config: Rke2Config) -> Iterable[Flaw]:
    """In the lab matrices are multiplied on a processor, and one monitoring has a chart; there is no more."""
    if not isinstance(config.hosts, LabHosts):
        return
    if isinstance(config.metrics, RancherMonitoring):
        yield Flaw(
            ("metrics", "kind"),
            "has no chart in the lab",
            show(config.metrics.kind),
            "write kube-prometheus-stack or none",
        )
    if not isinstance(config.proof, ProofL0 | ProofL1):
        yield Flaw(
            ("proof", "level"),
            "needs GPUs, and those of the lab are simulated",
            show(config.proof.level),
            "write L1 or L0",
        )


RULES = (
    the_lab_can_do_it,
    the_proofs_cuda_runs_on_the_driver,
    the_load_is_seen_by_somebody,
    there_is_something_to_exchange,
    shared_gpus_are_not_judged,
    there_is_time_enough,
)
