"""What keeps the ladder's training from running, on clusters of any type; paths are below the section."""

from gpuclusters.compat import gpu_products
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.versions import release
from gpuclusters.config.rules.rule import Wrong, Wrongs
from gpuclusters.config.usernetes import Training, UsernetesProof
from gpuclusters.config.usernetes_plan import TRAINING_RUNG
from gpuclusters.core.finding import Path

TRAINING: Path = ("proof", "training")
_CUDA_13 = (13, 0)
_PYTORCH_LAST = (2, 8)
"""From this release on only the builds for CUDA 12.6 have code for sm_70 (pytorch, issue 157517)."""
_PYTORCH_CUDA = (12, 6)


def _is_old(product: str) -> bool:
    return gpu_products.product(product).architecture.is_before(Architecture.TURING)


def cuda(stated: Training | None, product: str, newest: str) -> Wrongs:
    """The image's CUDA has code for the GPUs; `newest` still has for Volta."""
    if stated is None or stated.cuda is None or not _is_old(product):
        return
    if release(stated.cuda) >= _CUDA_13:
        yield Wrong((*TRAINING, "cuda"), product=product, newest=newest)


def pytorch(stated: Training | None, product: str) -> Wrongs:
    """So has its PyTorch."""
    if stated is None or stated.pytorch is None or not _is_old(product):
        return
    fits = stated.cuda is not None and release(stated.cuda)[:2] <= _PYTORCH_CUDA
    if release(stated.pytorch)[:2] >= _PYTORCH_LAST and not fits:
        yield Wrong((*TRAINING, "pytorch"), product=product, cuda=stated.cuda or "not stated")


def room(stated: Training | None, count: int, nodes: int) -> Wrongs:
    """Its pods fit on so many nodes with so many GPUs each."""
    if stated is None:
        return
    each = stated.gpus_per_pod or count
    if each > count:
        yield Wrong((*TRAINING, "gpus-per-pod"), "gpus", count=count)
        return
    most = nodes * (count // each)
    if nodes and (stated.pods or nodes) > most:
        yield Wrong((*TRAINING, "pods"), "pods", room=most, nodes=nodes, count=count, each=each)


def rung(proof: UsernetesProof) -> Wrongs:
    """The last rung is the training."""
    if proof.rung >= TRAINING_RUNG and proof.training is None:
        yield Wrong(TRAINING, "no-training", rung=TRAINING_RUNG, below=TRAINING_RUNG - 1)
    if proof.rung < TRAINING_RUNG and proof.training is not None:
        yield Wrong("proof.rung", "rung", rung=TRAINING_RUNG)


def timeout(stated: Training | None, most: int) -> Wrongs:
    """It ends within the whole proof."""
    if stated is not None and (stated.timeout_seconds or 0) > most:
        yield Wrong((*TRAINING, "timeout-seconds"), most=most)
