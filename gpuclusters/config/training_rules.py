"""Rules of the ladder's training, which clusters of several types have; paths are below the section."""

from collections.abc import Iterator

from gpuclusters.compat import gpu_products
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.compat.versions import release
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.gke_plan import gpu_nodes, gpus_per_node
from gpuclusters.config.rules.rule import Rule, Wrong, Wrongs, rule
from gpuclusters.config.usernetes import UsernetesConfig, VersionsName
from gpuclusters.config.usernetes_plan import TRAINING_RUNG, schedulable
from gpuclusters.core.finding import Path

TRAINING: Path = ("proof", "training")
_CUDA_13 = (13, 0)
_PYTORCH_LAST = (2, 8)
"""From this release on only the builds for CUDA 12.6 have code for sm_70 (pytorch, issue 157517)."""
_PYTORCH_CUDA = (12, 6)
Config = GkeConfig | UsernetesConfig


def rules(section: str) -> tuple[Rule, ...]:
    """Those of one section, by their codes."""
    checks = {
        "training-gpus": _room,
        "cuda-without-gpu": _cuda,
        "pytorch-without-gpu": _pytorch,
        "training-rung": _rung,
        "training-timeout": _timeout,
    }
    return tuple(rule(f"{section}.{name}")(check) for name, check in checks.items())


def _old_gpus(config: Config) -> Iterator[str]:
    """GPUs that newer builds have no code for."""
    gpus = [pool.gpu for pool in config.pools] if isinstance(config, GkeConfig) else [config.gpus]
    for product in (one.product for one in gpus if one is not None):
        if gpu_products.product(product).architecture.is_before(Architecture.TURING):
            yield product


def _cuda(config: Config) -> Wrongs:
    """The image's CUDA has code for the GPUs."""
    stated = config.proof.training
    if stated is None or stated.cuda is None or release(stated.cuda) < _CUDA_13:
        return
    versions = VersionsName.CURRENT if isinstance(config, GkeConfig) else config.versions
    for product in _old_gpus(config):
        newest = version_set(versions.value).cuda_newest
        yield Wrong((*TRAINING, "cuda"), product=product, newest=newest)


def _pytorch(config: Config) -> Wrongs:
    """So has its PyTorch."""
    stated = config.proof.training
    if stated is None or stated.pytorch is None or release(stated.pytorch)[:2] < _PYTORCH_LAST:
        return
    if stated.cuda is None or release(stated.cuda)[:2] > _PYTORCH_CUDA:
        for product in _old_gpus(config):
            yield Wrong((*TRAINING, "pytorch"), product=product, cuda=stated.cuda or "not stated")


def _room(config: Config) -> Wrongs:
    """Its pods fit on the nodes with GPUs that take pods."""
    stated = config.proof.training
    if isinstance(config, GkeConfig):
        nodes, count = gpu_nodes(config), gpus_per_node(config)
    else:
        nodes, count = len(schedulable(config)), config.gpus.count
    if stated is None:
        return
    each = stated.gpus_per_pod or count
    if each > count:
        yield Wrong((*TRAINING, "gpus-per-pod"), "gpus", count=count)
        return
    most = nodes * (count // each)
    if nodes and (stated.pods or nodes) > most:
        yield Wrong((*TRAINING, "pods"), "pods", room=most, nodes=nodes, count=count, each=each)


def _rung(config: Config) -> Wrongs:
    """The last rung is the training."""
    proof = config.proof
    if proof.rung >= TRAINING_RUNG and proof.training is None:
        yield Wrong(TRAINING, "no-training", rung=TRAINING_RUNG, below=TRAINING_RUNG - 1)
    if proof.rung < TRAINING_RUNG and proof.training is not None:
        yield Wrong("proof.rung", "rung", rung=TRAINING_RUNG)


def _timeout(config: Config) -> Wrongs:
    """It ends within the whole proof."""
    stated, most = config.proof.training, config.timeouts.proof_seconds
    if stated is not None and (stated.timeout_seconds or 0) > most:
        yield Wrong((*TRAINING, "timeout-seconds"), most=most)
