"""Versions of a Usernetes cluster that go together, from Usernetes itself to the driver."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Literal

from pydantic import ConfigDict

from gpuclusters.compat.dated_table import Row, Table

ARCHIVES = "https://github.com/rootless-containers/usernetes/archive/refs/tags"
"""Where the source archive of a tag is."""
PREFLIGHT_IMAGE = "docker.io/library/busybox:1.37.0"
"""In which upstream's Makefile asks for a sysctl; of its own accord it takes the one that is latest today."""
DEVICE_PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin"
DCGM_EXPORTER_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter"

Generation = Literal[2, 3]


class VersionSet(Row):
    """One set. It is plain data: inputs of a resource can hold it as it is."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    name: str = ""
    """Name of the set; a configuration that overrides a part of it keeps the name."""
    usernetes: str
    usernetes_sha256: str | None = None
    """Checksum of the source archive; None until a configuration states it."""
    usernetes_url: str | None = None
    """Where the source archive is, if not at GitHub."""
    kubernetes: str
    """Kubernetes of the node image, `v1.37.0`."""
    node_image: str
    """What the Dockerfile of the tag starts from."""
    docker: str
    """Docker Engine, without Debian's epoch and revision: `29.7.2`."""
    container_toolkit: str
    """All four packages of NVIDIA's container toolkit, on the host and in the node image: `1.20.0`."""
    device_plugin: str
    dcgm_exporter: str
    driver: str
    cuda_newest: str
    """Last CUDA whose images run on Volta, `12.9`."""
    slirp4netns: bool
    """Whether slirp4netns has to be installed beside Docker."""
    preflight_image: str = PREFLIGHT_IMAGE

    @property
    def generation(self) -> Generation:
        """2 or 3. From 3 on `make` has variables for the ranges of pods and services, and `install-cni`."""
        return 2 if self.usernetes.startswith("gen2-") else 3

    @property
    def archive_url(self) -> str:
        """Where the source archive is fetched from."""
        return self.usernetes_url or f"{ARCHIVES}/{self.usernetes}.tar.gz"

    @property
    def device_plugin_image(self) -> str:
        return f"{DEVICE_PLUGIN_IMAGE}:{self.device_plugin}"

    @property
    def dcgm_exporter_image(self) -> str:
        return f"{DCGM_EXPORTER_IMAGE}:{self.dcgm_exporter}"


class Limits(Row):
    """From which release on something is as this program needs it."""

    docker_cdi: str
    docker_slirp4netns: str
    toolkit_cdi: str
    plugin_nested: str


class Versions(Table):
    sets: Mapping[str, VersionSet]
    limits: Limits


table = cache(partial(Versions.packaged, "usernetes_versions"))


@cache
def version_set(name: str) -> VersionSet:
    """One set; KeyError if the table has no such set."""
    return table().sets[name].model_copy(update={"name": name})
