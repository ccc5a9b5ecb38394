"""Rows 48 and 49: the driver knows the GPUs, and versions go together."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import gpu_products, rke2_matrix, usernetes_versions
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import ModulesPolicy, branch_of
from gpuclusters.compat.versions import older, release
from gpuclusters.config import rke2_checks
from gpuclusters.config.fault import show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.config.usernetes import PackagedDriver, UsernetesConfig
from gpuclusters.config.usernetes_plan import driver_version, modules, versions
from gpuclusters.core.finding import Level, Path
from gpuclusters.driver.model import PackageSource

_VERSION: Path = ("driver", "version")


def architecture(config: UsernetesConfig) -> Architecture:
    """The generation of the GPUs."""
    return gpu_products.product(config.gpus.product).architecture


@rule(48, "usernetes.driver-branch-unknown")
def the_hosts_branch_is_known(config: UsernetesConfig) -> Iterable[Wrong]:
    version = driver_version(config)
    return rke2_checks.known_branch(_VERSION, branch_of(version), version)


@rule(48, "usernetes.driver-version-unknown", level=Level.WARN)
def the_hosts_driver_exists(config: UsernetesConfig) -> Iterable[Wrong]:
    return rke2_checks.known_version(_VERSION, driver_version(config))


@rule(48, "usernetes.driver-without-gpu")
def the_hosts_driver_knows_the_gpus(config: UsernetesConfig) -> Iterable[Wrong]:
    version = driver_version(config)
    branch = rke2_matrix.branch(branch_of(version))
    generation = architecture(config)
    if branch is not None and generation.is_before(branch.oldest):
        last = rke2_matrix.last_branch_for(generation)
        yield Wrong(
            _VERSION,
            f"does not know {config.gpus.product}, which is {generation}: the last that does is {last};"
            " with a later one the driver is installed and shows no device",
            f"write {rke2_matrix.newest_driver(last)}, or remove it",
            show(version),
        )


@rule(48, "usernetes.driver-too-old")
def the_hosts_driver_is_new_enough(config: UsernetesConfig) -> Iterable[Wrong]:
    least = gpu_products.product(config.gpus.product).minimum_driver
    version = driver_version(config)
    if least is not None and release(version) < release(least):
        yield Wrong(
            _VERSION,
            f"is older than {least}, the first driver for {config.gpus.product}",
            f"write {least} or newer",
            show(version),
        )


@rule(48, "usernetes.driver-branch-ended", level=Level.WARN)
def the_hosts_branch_still_gets_fixes(config: UsernetesConfig) -> Iterable[Wrong]:
    return rke2_checks.fixed_branch(_VERSION, driver_version(config))


@rule(48, "usernetes.kernel-modules")
def gpus_take_the_hosts_modules(config: UsernetesConfig) -> Iterable[Wrong]:
    if not isinstance(config.driver, PackagedDriver):
        return
    chosen = modules(config)
    version = driver_version(config)
    problem = rke2_matrix.module_problem(chosen, branch_of(version), architecture(config))
    if problem is not None:
        open_ones = chosen is ModulesPolicy.OPEN
        other = ModulesPolicy.PROPRIETARY if open_ones else ModulesPolicy.OPEN
        yield Wrong(
            "driver.modules",
            f"do not fit {config.gpus.product}: its GPUs {problem}",
            f"write auto, or {other.value}",
            show(chosen.value),
        )


@rule(48, "usernetes.secure-boot")
def secure_boot_takes_the_hosts_modules(config: UsernetesConfig) -> Iterable[Wrong]:
    if not config.secure_boot:
        return
    if isinstance(config.hosts, GcpHosts):
        yield Wrong(
            "secure-boot",
            "is true, and machines with GPUs are made without it on Google Cloud",
            "write false",
        )
    elif (
        isinstance(config.driver, PackagedDriver) and config.driver.packages is PackageSource.NVIDIA
    ):
        yield Wrong(
            "driver.packages",
            "builds modules on the hosts, which nobody signs: Secure Boot refuses them,"
            ' "Key was rejected by service"',
            "write distribution: Ubuntu's prebuilt modules are signed",
        )


def _place(key: str) -> Path:
    return ("version-overrides", key)


@rule(49, "usernetes.checksum-missing")
def the_source_archive_has_a_checksum(config: UsernetesConfig) -> Iterable[Wrong]:
    chosen = versions(config)
    if chosen.usernetes_sha256 is None:
        measure = (
            f"write what `curl -fsSL {chosen.archive_url} | sha256sum` prints, once you have compared the"
            " archive as docs/usernetes.md says"
        )
        in_lab = isinstance(config.hosts, LabHosts)
        yield Wrong(
            _place("usernetes-sha256"),
            f"is missing, and this version has not seen the archive of {chosen.usernetes}",
            "write that of the lab's own archive, as Pulumi.dev.yaml has it" if in_lab else measure,
        )


@rule(49, "usernetes.tag-incomplete")
def another_tag_says_what_it_brings(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.version_overrides
    brings = {"kubernetes": stated.kubernetes, "node-image": stated.node_image}
    for key, value in brings.items():
        if stated.usernetes is not None and value is None:
            yield Wrong(
                _place(key),
                f"is missing: nobody has read here what {stated.usernetes} brings",
                "write what BASE_IMAGE in the Dockerfile at that tag says",
            )
        elif stated.usernetes is None and value is not None:
            yield Wrong(
                _place(key),
                "is decided by the tag of Usernetes, and that is the set's",
                "remove it, or write the tag that brings it as usernetes",
                show(value),
            )


@rule(49, "usernetes.node-image-version")
def the_node_image_has_the_kubernetes(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.version_overrides
    if stated.usernetes is None or stated.node_image is None or stated.kubernetes is None:
        return
    tag = stated.node_image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag and tag != stated.kubernetes:
        yield Wrong(
            _place("kubernetes"),
            f"is not that of the node image, which has {tag}",
            f"write {tag}",
            show(stated.kubernetes),
        )


@rule(49, "usernetes.docker-without-cdi")
def docker_finds_cdi_devices(config: UsernetesConfig) -> Iterable[Wrong]:
    least = usernetes_versions.table().limits.docker_cdi
    chosen = versions(config).docker
    if older(chosen, release(least)):
        yield Wrong(
            _place("docker"),
            f"is older than {least}, the first Docker that has CDI on and shows its devices in `docker info`",
            f"write {least}.0 or newer, or remove it",
            show(chosen),
        )


@rule(49, "usernetes.docker-network")
def docker_has_the_network_it_was_tried_with(config: UsernetesConfig) -> Iterable[Wrong]:
    first = usernetes_versions.table().limits.docker_slirp4netns
    if config.version_overrides.slirp4netns is False:
        yield Wrong(
            _place("slirp4netns"),
            f"is false, and Docker takes another network without it from {first} on, in which containers miss"
            " the metadata server",
            "remove it: every host gets it, whatever its Docker",
        )


@rule(49, "usernetes.toolkit-version")
def the_toolkit_uses_cdi(config: UsernetesConfig) -> Iterable[Wrong]:
    least = usernetes_versions.table().limits.toolkit_cdi
    chosen = versions(config).container_toolkit
    if older(chosen, release(least)):
        yield Wrong(
            _place("container-toolkit"),
            f"is older than {least}: up to 1.17 its hook sets device cgroups, which no rootless container"
            ' may, "bpf_prog_query(BPF_CGROUP_DEVICE) failed", and 1.18.0 broke containers within containers',
            f"write {least} or newer, or remove it",
            show(chosen),
        )


@rule(49, "usernetes.plugin-version")
def the_plugin_starts_in_a_nested_container(config: UsernetesConfig) -> Iterable[Wrong]:
    least = usernetes_versions.table().limits.plugin_nested
    chosen = versions(config).device_plugin
    if older(chosen, release(least)):
        yield Wrong(
            _place("device-plugin"),
            f"is older than v{least}, the first that starts in a container within a container",
            f"write v{least} or newer, or remove it",
            show(chosen),
        )
