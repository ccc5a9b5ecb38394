"""Row 49: versions that go together, and a source whose content is known."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config.fault import NOTHING, Flaw, Path, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_plan import versions
from gpuclusters.domain import usernetes_versions
from gpuclusters.domain.usernetes_versions import limit
from gpuclusters.domain.versions import older

_NEEDS = ("versions", "version_overrides", "driver")


def _place(key: str) -> Path:
    return ("version-overrides", key)


@rule(49, needs=(*_NEEDS, "hosts"))
def the_source_archive_has_a_checksum(config: UsernetesConfig) -> Iterable[Flaw]:
    """Hosts compare the archive of Usernetes with a checksum before anything of it runs."""
    chosen = versions(config)
    if chosen.usernetes_sha256 is None:
        measure = (
            f"write what `curl -fsSL {chosen.archive_url} | sha256sum` prints, once you have compared the"
            " archive as docs/usernetes.md says"
        )
        in_lab = isinstance(config.hosts, LabHosts)
        yield Flaw(
            _place("usernetes-sha256"),
            f"is missing, and this version has not seen the archive of {chosen.usernetes}",
            NOTHING,
            "write that of the lab's own archive, as Pulumi.dev.yaml has it" if in_lab else measure,
        )


@rule(49, needs=["version_overrides"])
def another_tag_says_what_it_brings(config: UsernetesConfig) -> Iterable[Flaw]:
    """The Dockerfile at the tag decides Kubernetes and the node image; they are stated with it."""
    stated = config.version_overrides
    brings = {"kubernetes": stated.kubernetes, "node-image": stated.node_image}
    for key, value in brings.items():
        if stated.usernetes is not None and value is None:
            yield Flaw(
                _place(key),
                f"is missing: nobody has read here what {stated.usernetes} brings",
                NOTHING,
                "write what BASE_IMAGE in the Dockerfile at that tag says",
            )
        elif stated.usernetes is None and value is not None:
            yield Flaw(
                _place(key),
                "is decided by the tag of Usernetes, and that is the set's",
                show(value),
                "remove it, or write the tag that brings it as usernetes",
            )


@rule(49, needs=["version_overrides"])
def the_node_image_has_the_kubernetes(config: UsernetesConfig) -> Iterable[Flaw]:
    """The tag of a node image is the Kubernetes in it."""
    stated = config.version_overrides
    if stated.usernetes is None or stated.node_image is None or stated.kubernetes is None:
        return
    tag = stated.node_image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if tag and tag != stated.kubernetes:
        yield Flaw(
            _place("kubernetes"),
            f"is not that of the node image, which has {tag}",
            show(stated.kubernetes),
            f"write {tag}",
        )


@rule(49, needs=_NEEDS)
def docker_finds_cdi_devices(config: UsernetesConfig) -> Iterable[Flaw]:
    """CDI is on by itself from Docker 28.2 on; before, no container gets a GPU by its name."""
    least = usernetes_versions.table().limits.docker_cdi
    chosen = versions(config).docker
    if older(chosen, limit(least)):
        yield Flaw(
            _place("docker"),
            f"is older than {least}, the first Docker that has CDI on and shows its devices in `docker info`",
            show(chosen),
            f"write {least}.0 or newer, or remove it",
        )


@rule(49, needs=["version_overrides"])
def docker_has_the_network_it_was_tried_with(config: UsernetesConfig) -> Iterable[Flaw]:
    """Every host gets slirp4netns: without it Docker takes another network from 29.5 on."""
    first = usernetes_versions.table().limits.docker_slirp4netns
    if config.version_overrides.slirp4netns is False:
        yield Flaw(
            _place("slirp4netns"),
            f"is false, and Docker takes another network without it from {first} on, in which containers miss"
            " the metadata server",
            "false",
            "remove it: every host gets it, whatever its Docker",
        )


@rule(49, needs=_NEEDS)
def the_toolkit_uses_cdi(config: UsernetesConfig) -> Iterable[Flaw]:
    """Before 1.18 the toolkit's hook sets device cgroups, and 1.18.0 broke rootless containers."""
    least = usernetes_versions.table().limits.toolkit_cdi
    chosen = versions(config).container_toolkit
    if older(chosen, limit(least)):
        yield Flaw(
            _place("container-toolkit"),
            f"is older than {least}: up to 1.17 its hook sets device cgroups, which no rootless container"
            ' may, "bpf_prog_query(BPF_CGROUP_DEVICE) failed", and 1.18.0 broke containers within containers',
            show(chosen),
            f"write {least} or newer, or remove it",
        )


@rule(49, needs=_NEEDS)
def the_plugin_starts_in_a_nested_container(config: UsernetesConfig) -> Iterable[Flaw]:
    """A node is a container, and the plugin a container in it: that works from 0.18.2 on."""
    least = usernetes_versions.table().limits.plugin_nested
    chosen = versions(config).device_plugin
    if older(chosen, limit(least)):
        yield Flaw(
            _place("device-plugin"),
            f"is older than v{least}, the first that starts in a container within a container",
            show(chosen),
            f"write v{least} or newer, or remove it",
        )


RULES = (
    the_source_archive_has_a_checksum,
    another_tag_says_what_it_brings,
    the_node_image_has_the_kubernetes,
    docker_finds_cdi_devices,
    docker_has_the_network_it_was_tried_with,
    the_toolkit_uses_cdi,
    the_plugin_starts_in_a_nested_container,
)
