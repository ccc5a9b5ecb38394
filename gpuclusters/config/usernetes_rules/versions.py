"""Rules of usernetes: driver, versions and the training's image fit the GPUs and each other."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.compat import gpu_products, rke2_matrix, usernetes_versions
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import branch_of
from gpuclusters.compat.versions import older, release
from gpuclusters.config import rke2_checks
from gpuclusters.config.fault import show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import Wrong, Wrongs, rule
from gpuclusters.config.usernetes import PackagedDriver, Training, UsernetesConfig
from gpuclusters.config.usernetes_plan import TRAINING_RUNG, driver_version, modules, versions
from gpuclusters.core.finding import Level, Path
from gpuclusters.driver.model import PackageSource

_VERSION: Path = ("driver", "version")


def _architecture(config: UsernetesConfig) -> Architecture:
    return gpu_products.product(config.gpus.product).architecture


@rule("usernetes.driver-branch-unknown")
def the_hosts_branch_is_known(config: UsernetesConfig) -> Wrongs:
    version = driver_version(config)
    return rke2_checks.known_branch(_VERSION, branch_of(version), version)


@rule("usernetes.driver-version-unknown", level=Level.WARN)
def the_hosts_driver_exists(config: UsernetesConfig) -> Wrongs:
    return rke2_checks.known_version(_VERSION, driver_version(config))


@rule("usernetes.driver-without-gpu")
def the_hosts_driver_knows_the_gpus(config: UsernetesConfig) -> Wrongs:
    version, generation = driver_version(config), _architecture(config)
    branch = rke2_matrix.branch(branch_of(version))
    if branch is not None and generation.is_before(branch.oldest):
        last = rke2_matrix.last_branch_for(generation)
        wrong = f"does not know {config.gpus.product}, which is {generation}: the last that does is {last}"
        remedy = f"write {rke2_matrix.newest_driver(last)}, or remove it"
        yield Wrong(_VERSION, wrong, remedy, show(version))


@rule("usernetes.driver-too-old")
def the_hosts_driver_is_new_enough(config: UsernetesConfig) -> Wrongs:
    return rke2_checks.new_enough(_VERSION, driver_version(config), config.gpus.product)


@rule("usernetes.driver-branch-ended", level=Level.WARN)
def the_hosts_branch_still_gets_fixes(config: UsernetesConfig) -> Wrongs:
    return rke2_checks.fixed_branch(_VERSION, driver_version(config))


@rule("usernetes.kernel-modules", "driver", kind=PackagedDriver)
def gpus_take_the_hosts_modules(config: UsernetesConfig, _driver: PackagedDriver) -> Wrongs:
    version, product = driver_version(config), config.gpus.product
    return rke2_checks.fitting_modules(("modules",), modules(config), version, product)


@rule("usernetes.secure-boot")
def secure_boot_takes_the_hosts_modules(config: UsernetesConfig) -> Wrongs:
    if not config.secure_boot:
        return
    if isinstance(config.hosts, GcpHosts):
        wrong = "is true, and machines with GPUs are made without it on Google Cloud"
        yield Wrong("secure-boot", wrong, "write false")
        return
    match config.driver:
        case PackagedDriver(packages=PackageSource.NVIDIA):
            wrong = 'builds modules that nobody signs, and Secure Boot says "Key was rejected by service"'
            remedy = "write distribution: Ubuntu's prebuilt modules are signed"
            yield Wrong("driver.packages", wrong, remedy)


def _place(key: str) -> Path:
    return ("version-overrides", key)


@rule("usernetes.checksum-missing")
def the_source_archive_has_a_checksum(config: UsernetesConfig) -> Wrongs:
    chosen = versions(config)
    remedy = (
        f"write what `curl -fsSL {chosen.archive_url} | sha256sum` prints, once you have compared the"
        " archive as docs/usernetes.md says"
    )
    if isinstance(config.hosts, LabHosts):
        remedy = "write that of the lab's own archive, as Pulumi.dev.yaml has it"
    if chosen.usernetes_sha256 is None:
        wrong = f"is missing, and this version has not seen the archive of {chosen.usernetes}"
        yield Wrong(_place("usernetes-sha256"), wrong, remedy)


@rule("usernetes.tag-incomplete")
def another_tag_says_what_it_brings(config: UsernetesConfig) -> Wrongs:
    stated = config.version_overrides
    for key, value in (("kubernetes", stated.kubernetes), ("node-image", stated.node_image)):
        if stated.usernetes is not None and value is None:
            wrong = f"is missing: nobody has read here what {stated.usernetes} brings"
            remedy = "write what BASE_IMAGE in the Dockerfile at that tag says"
            yield Wrong(_place(key), wrong, remedy)
        elif stated.usernetes is None and value is not None:
            wrong = "is decided by the tag of Usernetes, and that is the set's"
            remedy = "remove it, or write the tag that brings it as usernetes"
            yield Wrong(_place(key), wrong, remedy)


@rule("usernetes.node-image-version")
def the_node_image_has_the_kubernetes(config: UsernetesConfig) -> Wrongs:
    stated = config.version_overrides
    if stated.usernetes is None or stated.node_image is None or stated.kubernetes is None:
        return
    tag = stated.node_image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag and tag != stated.kubernetes:
        wrong = f"is not that of the node image, which has {tag}"
        yield Wrong(_place("kubernetes"), wrong, f"write {tag}")


def _not_older(key: str, chosen: str, least: str, why: str, write: str) -> Wrongs:
    """A version is at least what this program needs."""
    if older(chosen, release(least)):
        wrong, remedy = f"is older than {why}", f"write {write} or newer, or remove it"
        yield Wrong(_place(key), wrong, remedy, show(chosen))


@rule("usernetes.docker-without-cdi")
def docker_finds_cdi_devices(config: UsernetesConfig) -> Wrongs:
    least = usernetes_versions.table().limits.docker_cdi
    why = f"{least}, the first Docker that has CDI on and shows its devices in `docker info`"
    return _not_older("docker", versions(config).docker, least, why, f"{least}.0")


@rule("usernetes.docker-network")
def docker_has_the_network_it_was_tried_with(config: UsernetesConfig) -> Wrongs:
    first = usernetes_versions.table().limits.docker_slirp4netns
    if config.version_overrides.slirp4netns is False:
        wrong = f"is false: from Docker {first} on containers miss the metadata server then"
        yield Wrong(_place("slirp4netns"), wrong)


@rule("usernetes.toolkit-version")
def the_toolkit_uses_cdi(config: UsernetesConfig) -> Wrongs:
    least = usernetes_versions.table().limits.toolkit_cdi
    why = (
        f"{least}: up to 1.17 its hook sets device cgroups, which no rootless container may,"
        ' "bpf_prog_query(BPF_CGROUP_DEVICE) failed", and 1.18.0 broke containers within containers'
    )
    chosen = versions(config).container_toolkit
    return _not_older("container-toolkit", chosen, least, why, least)


@rule("usernetes.plugin-version")
def the_plugin_starts_in_a_nested_container(config: UsernetesConfig) -> Wrongs:
    least = usernetes_versions.table().limits.plugin_nested
    why = f"v{least}, the first that starts in a container within a container"
    return _not_older("device-plugin", versions(config).device_plugin, least, why, f"v{least}")


LARGEST_UID = 65_535
"""Ids within a rootless container: the account's own and 65536 subordinate ones."""
KNOWN_UIDS = {"pytorch-mnist:v1beta1-45c5727": 1_185_200_044}
"""Images of trainings whose files have an owner above that: kubeflow/katib, seen in 2025."""
_TRAINING: Path = ("proof", "training")
_CUDA_13 = (13, 0)
_PYTORCH_LAST = (2, 8)
"""From this release on only the builds for CUDA 12.6 have code for sm_70 (pytorch, issue 157517)."""
_PYTORCH_CUDA = (12, 6)


def _is_old(config: UsernetesConfig) -> bool:
    return _architecture(config).is_before(Architecture.TURING)


@rule("usernetes.cuda-without-gpu")
def the_images_cuda_has_code_for_the_gpus(config: UsernetesConfig) -> Wrongs:
    stated = config.proof.training
    if stated is None or stated.cuda is None or not _is_old(config):
        return
    newest = versions(config).cuda_newest
    if release(stated.cuda) >= _CUDA_13:
        wrong = f"has no code for {config.gpus.product}: the last CUDA that has is {newest}"
        yield Wrong((*_TRAINING, "cuda"), wrong, f"write {newest} or older, and an image with it")


@rule("usernetes.pytorch-without-gpu")
def pytorch_has_code_for_the_gpus(config: UsernetesConfig) -> Wrongs:
    stated = config.proof.training
    if stated is None or stated.pytorch is None or not _is_old(config):
        return
    fits = stated.cuda is not None and release(stated.cuda)[:2] <= _PYTORCH_CUDA
    if release(stated.pytorch)[:2] >= _PYTORCH_LAST and not fits:
        wrong = f"needs CUDA 12.6 for {config.gpus.product}; cuda is {stated.cuda or 'not stated'}"
        yield Wrong((*_TRAINING, "pytorch"), wrong)


def _uids(stated: Training) -> Iterator[tuple[str, int]]:
    for name, uid in KNOWN_UIDS.items():
        if f"/{name}@" in stated.image:
            yield "image", uid
    yield "largest-uid", stated.largest_uid or 0


@rule("usernetes.image-uid")
def the_images_owners_have_subordinate_ids(config: UsernetesConfig) -> Wrongs:
    stated = config.proof.training
    for key, uid in () if stated is None else _uids(stated):
        if uid > LARGEST_UID:
            wrong = f'has files of uid {uid}, above {LARGEST_UID}: its pull fails, "lchown: invalid argument"'
            yield Wrong((*_TRAINING, key), wrong)


@rule("usernetes.training-rung")
def the_last_rung_has_a_training(config: UsernetesConfig) -> Wrongs:
    stated = config.proof
    if stated.rung >= TRAINING_RUNG and stated.training is None:
        wrong = f"is missing, and rung {TRAINING_RUNG} is a training"
        yield Wrong(_TRAINING, wrong, f"write it, or rung: {TRAINING_RUNG - 1}")
    if stated.rung < TRAINING_RUNG and stated.training is not None:
        wrong = f"ends before the training, which is rung {TRAINING_RUNG}"
        yield Wrong("proof.rung", wrong, f"write {TRAINING_RUNG}, or remove the training")


@rule("usernetes.training-timeout")
def the_training_ends_within_the_proof(config: UsernetesConfig) -> Wrongs:
    stated, most = config.proof.training, config.timeouts.proof_seconds
    if stated is not None and (stated.timeout_seconds or 0) > most:
        wrong = f"is more than timeouts.proof-seconds, which is {most} for all rungs"
        yield Wrong((*_TRAINING, "timeout-seconds"), wrong)
