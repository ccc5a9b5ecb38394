"""Row 49: versions that go together, and a source whose content is known."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import usernetes_versions
from gpuclusters.compat.usernetes_versions import limit
from gpuclusters.compat.versions import older
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_plan import versions
from gpuclusters.core.finding import Finding, Path


def _place(key: str) -> Path:
    return ("version-overrides", key)


@rule(49, "usernetes.checksum-missing")
def the_source_archive_has_a_checksum(config: UsernetesConfig) -> Iterable[Finding]:
    chosen = versions(config)
    if chosen.usernetes_sha256 is None:
        measure = (
            f"write what `curl -fsSL {chosen.archive_url} | sha256sum` prints, once you have compared the"
            " archive as docs/usernetes.md says"
        )
        in_lab = isinstance(config.hosts, LabHosts)
        yield finding(
            _place("usernetes-sha256"),
            f"is missing, and this version has not seen the archive of {chosen.usernetes}",
            NOTHING,
            "write that of the lab's own archive, as Pulumi.dev.yaml has it" if in_lab else measure,
        )


@rule(49, "usernetes.tag-incomplete")
def another_tag_says_what_it_brings(config: UsernetesConfig) -> Iterable[Finding]:
    stated = config.version_overrides
    brings = {"kubernetes": stated.kubernetes, "node-image": stated.node_image}
    for key, value in brings.items():
        if stated.usernetes is not None and value is None:
            yield finding(
                _place(key),
                f"is missing: nobody has read here what {stated.usernetes} brings",
                NOTHING,
                "write what BASE_IMAGE in the Dockerfile at that tag says",
            )
        elif stated.usernetes is None and value is not None:
            yield finding(
                _place(key),
                "is decided by the tag of Usernetes, and that is the set's",
                show(value),
                "remove it, or write the tag that brings it as usernetes",
            )


@rule(49, "usernetes.node-image-version")
def the_node_image_has_the_kubernetes(config: UsernetesConfig) -> Iterable[Finding]:
    stated = config.version_overrides
    if stated.usernetes is None or stated.node_image is None or stated.kubernetes is None:
        return
    tag = stated.node_image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag and tag != stated.kubernetes:
        yield finding(
            _place("kubernetes"),
            f"is not that of the node image, which has {tag}",
            show(stated.kubernetes),
            f"write {tag}",
        )


@rule(49, "usernetes.docker-without-cdi")
def docker_finds_cdi_devices(config: UsernetesConfig) -> Iterable[Finding]:
    least = usernetes_versions.table().limits.docker_cdi
    chosen = versions(config).docker
    if older(chosen, limit(least)):
        yield finding(
            _place("docker"),
            f"is older than {least}, the first Docker that has CDI on and shows its devices in `docker info`",
            show(chosen),
            f"write {least}.0 or newer, or remove it",
        )


@rule(49, "usernetes.docker-network")
def docker_has_the_network_it_was_tried_with(config: UsernetesConfig) -> Iterable[Finding]:
    first = usernetes_versions.table().limits.docker_slirp4netns
    if config.version_overrides.slirp4netns is False:
        yield finding(
            _place("slirp4netns"),
            f"is false, and Docker takes another network without it from {first} on, in which containers miss"
            " the metadata server",
            "false",
            "remove it: every host gets it, whatever its Docker",
        )


@rule(49, "usernetes.toolkit-version")
def the_toolkit_uses_cdi(config: UsernetesConfig) -> Iterable[Finding]:
    least = usernetes_versions.table().limits.toolkit_cdi
    chosen = versions(config).container_toolkit
    if older(chosen, limit(least)):
        yield finding(
            _place("container-toolkit"),
            f"is older than {least}: up to 1.17 its hook sets device cgroups, which no rootless container"
            ' may, "bpf_prog_query(BPF_CGROUP_DEVICE) failed", and 1.18.0 broke containers within containers',
            show(chosen),
            f"write {least} or newer, or remove it",
        )


@rule(49, "usernetes.plugin-version")
def the_plugin_starts_in_a_nested_container(config: UsernetesConfig) -> Iterable[Finding]:
    least = usernetes_versions.table().limits.plugin_nested
    chosen = versions(config).device_plugin
    if older(chosen, limit(least)):
        yield finding(
            _place("device-plugin"),
            f"is older than v{least}, the first that starts in a container within a container",
            show(chosen),
            f"write v{least} or newer, or remove it",
        )
