"""Row 54: the training runs on these GPUs, and its image can be unpacked without root."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.versions import release
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_plan import TRAINING_RUNG, versions
from gpuclusters.config.usernetes_rules.versions import architecture
from gpuclusters.core.finding import Finding, Path

LARGEST_UID = 65_535
"""Ids within a rootless container: the account's own and 65536 subordinate ones."""
KNOWN_UIDS = {"pytorch-mnist:v1beta1-45c5727": 1_185_200_044}
"""Images of trainings whose files have an owner above that: kubeflow/katib, seen in 2025."""
_TRAINING: Path = ("proof", "training")
_CUDA_13 = (13, 0)
_PYTORCH_LAST = (2, 8)
"""From this release on only the builds for CUDA 12.6 have code for sm_70 (pytorch, issue 157517)."""
_PYTORCH_CUDA = (12, 6)


@rule(54, "usernetes.cuda-without-gpu")
def the_images_cuda_has_code_for_the_gpus(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.proof.training
    if stated is None or stated.cuda is None or not _is_old(config):
        return
    newest = versions(config).cuda_newest
    if release(stated.cuda) >= _CUDA_13:
        yield Wrong(
            (*_TRAINING, "cuda"),
            f"has no code for {config.gpus.product}: the last CUDA that has is {newest}",
            f"write {newest} or older, and an image with it",
            show(stated.cuda),
        )


@rule(54, "usernetes.pytorch-without-gpu")
def pytorch_has_code_for_the_gpus(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.proof.training
    if stated is None or stated.pytorch is None or not _is_old(config):
        return
    if release(stated.pytorch)[:2] < _PYTORCH_LAST:
        return
    if stated.cuda is None or release(stated.cuda)[:2] > _PYTORCH_CUDA:
        yield Wrong(
            (*_TRAINING, "pytorch"),
            f"has code for {config.gpus.product} in its builds for CUDA 12.6 alone, and cuda is"
            f" {stated.cuda or 'not stated'}",
            'write cuda: "12.6" with such a build, or a PyTorch before 2.8',
            show(stated.pytorch),
        )


def _is_old(config: UsernetesConfig) -> bool:
    return architecture(config).is_before(Architecture.TURING)


@rule(54, "usernetes.image-uid")
def the_images_owners_have_subordinate_ids(config: UsernetesConfig) -> Iterable[Wrong | Finding]:
    stated = config.proof.training
    if stated is None:
        return
    for name, uid in KNOWN_UIDS.items():
        if f"/{name}@" in stated.image:
            yield _unpacked((*_TRAINING, "image"), uid, stated.image)
    if stated.largest_uid is not None and stated.largest_uid > LARGEST_UID:
        yield _unpacked((*_TRAINING, "largest-uid"), stated.largest_uid, stated.largest_uid)


def _unpacked(path: Path, uid: int, value: object) -> Finding:
    return finding(
        path,
        f"has files of uid {uid}, and a rootless account has ids up to {LARGEST_UID}: its pull ends with"
        ' "lchown: invalid argument"',
        show(value),
        "write an image whose files have small uids, as v1beta1-8f182c2 has",
    )


@rule(54, "usernetes.training-rung")
def the_last_rung_has_a_training(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.proof
    if stated.rung >= TRAINING_RUNG and stated.training is None:
        yield Wrong(
            _TRAINING,
            f"is missing, and rung {TRAINING_RUNG} is a training",
            f"write it, or rung: {TRAINING_RUNG - 1}",
        )
    if stated.rung < TRAINING_RUNG and stated.training is not None:
        yield Wrong(
            "proof.rung",
            f"ends before the training, which is rung {TRAINING_RUNG}",
            f"write {TRAINING_RUNG}, or remove the training",
        )


@rule(54, "usernetes.training-timeout")
def the_training_ends_within_the_proof(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.proof.training
    most = config.timeouts.proof_seconds
    if stated is not None and stated.timeout_seconds is not None and stated.timeout_seconds > most:
        yield Wrong(
            (*_TRAINING, "timeout-seconds"),
            f"is more than timeouts.proof-seconds, which is {most} for all rungs",
            "write less here or more there",
            show(stated.timeout_seconds),
        )
