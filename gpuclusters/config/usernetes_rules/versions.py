"""Rules of usernetes: driver, versions and the training's image fit the GPUs and each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuclusters.compat import gpu_products, rke2_matrix, usernetes_versions
from gpuclusters.compat.rke2_matrix import branch_of
from gpuclusters.compat.versions import older, release
from gpuclusters.config import rke2_checks, training_rules
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import Check, Wrong, Wrongs, rule
from gpuclusters.config.usernetes import PackagedDriver, UsernetesConfig
from gpuclusters.config.usernetes_plan import driver_version, modules, versions
from gpuclusters.core.finding import Level, Path
from gpuclusters.driver.model import PackageSource
from gpuclusters.proof.model import Training

_VERSION: Path = ("driver", "version")


@rule("usernetes.driver-branch-unknown")
def the_hosts_branch_is_known(config: UsernetesConfig) -> Wrongs:
    version = driver_version(config)
    return rke2_checks.known_branch(_VERSION, branch_of(version), version)


@rule("usernetes.driver-version-unknown", level=Level.WARN)
def the_hosts_driver_exists(config: UsernetesConfig) -> Wrongs:
    return rke2_checks.known_version(_VERSION, driver_version(config))


@rule("usernetes.driver-without-gpu")
def the_hosts_driver_knows_the_gpus(config: UsernetesConfig) -> Wrongs:
    version = driver_version(config)
    generation = gpu_products.product(config.gpus.product).architecture
    branch = rke2_matrix.branch(branch_of(version))
    if branch is not None and generation.is_before(branch.oldest):
        last = rke2_matrix.last_branch_for(generation)
        got, newest = show(version), rke2_matrix.newest_driver(last)
        said: dict[str, Any] = {"generation": generation, "last": last, "driver": newest}
        yield Wrong(_VERSION, got=got, gpus=config.gpus, **said)


@rule("usernetes.product-not-in-table")
def the_driver_of_other_gpus_is_stated(config: UsernetesConfig) -> Wrongs:
    product = config.gpus.product
    if product not in gpu_products.names() and config.driver.version is None:
        yield Wrong(_VERSION, got=NOTHING, product=product)


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
        yield Wrong("secure-boot", "google-cloud")
        return
    match config.driver:
        case PackagedDriver(packages=PackageSource.NVIDIA):
            yield Wrong("driver.packages", "unsigned")


def _place(key: str) -> Path:
    return ("version-overrides", key)


@rule("usernetes.checksum-missing")
def the_source_archive_has_a_checksum(config: UsernetesConfig) -> Wrongs:
    chosen = versions(config)
    if chosen.usernetes_sha256 is None:
        case = "in-lab" if isinstance(config.hosts, LabHosts) else "outside"
        yield Wrong(_place("usernetes-sha256"), case, chosen=chosen)


@rule("usernetes.tag-incomplete")
def another_tag_says_what_it_brings(config: UsernetesConfig) -> Wrongs:
    stated = config.version_overrides
    for key, value in (("kubernetes", stated.kubernetes), ("node-image", stated.node_image)):
        if stated.usernetes is not None and value is None:
            yield Wrong(_place(key), "missing", usernetes=stated.usernetes)
        elif stated.usernetes is None and value is not None:
            yield Wrong(_place(key), "of-the-set")


@rule("usernetes.node-image-version")
def the_node_image_has_the_kubernetes(config: UsernetesConfig) -> Wrongs:
    stated = config.version_overrides
    if stated.usernetes is None or stated.node_image is None or stated.kubernetes is None:
        return
    tag = stated.node_image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag and tag != stated.kubernetes:
        yield Wrong(_place("kubernetes"), tag=tag)


@rule("usernetes.docker-network")
def docker_has_the_network_it_was_tried_with(config: UsernetesConfig) -> Wrongs:
    first = usernetes_versions.table().limits.docker_slirp4netns
    if config.version_overrides.slirp4netns is False:
        yield Wrong(_place("slirp4netns"), first=first)


def _not_older(key: str, limit: str) -> Check:
    """A version is at least what this program needs, which the table of limits has."""

    def check(config: UsernetesConfig) -> Wrongs:
        chosen = getattr(versions(config), key.replace("-", "_"))
        least = getattr(usernetes_versions.table().limits, limit)
        if older(chosen, release(least)):
            yield Wrong(_place(key), got=show(chosen), least=least)

    return check


NOT_OLDER = (
    rule("usernetes.docker-without-cdi")(_not_older("docker", "docker_cdi")),
    rule("usernetes.toolkit-version")(_not_older("container-toolkit", "toolkit_cdi")),
    rule("usernetes.plugin-version")(_not_older("device-plugin", "plugin_nested")),
)


LARGEST_UID = 65_535
"""Ids within a rootless container: the account's own and 65536 subordinate ones."""
KNOWN_UIDS = {"pytorch-mnist:v1beta1-45c5727": 1_185_200_044}
"""Images of trainings whose files have an owner above that: kubeflow/katib, seen in 2025."""


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
            yield Wrong((*training_rules.TRAINING, key), uid=uid, most=LARGEST_UID)


TRAINING = training_rules.rules("usernetes")
