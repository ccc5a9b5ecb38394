"""`kubernetes` with `source: rke2`: a cluster that is made on your machines, with Cilium."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from gpuclusters.config.hosts import Address, HostKey
from gpuclusters.core.section import (
    Count,
    DnsLabel,
    DnsName,
    Flag,
    Port,
    Seconds,
    Section,
    Text,
    matches,
    refusal,
)
from gpuclusters.rke2 import releases
from gpuclusters.rke2.host_config import Encryption, PolicyEnforcement
from gpuclusters.rke2.model import MOST_AGENTS_AT_ONCE

RELEASES = "https://github.com/rancher/rke2/releases/download"


def _version(value: Any) -> Any:
    try:
        releases.parse_version(value if isinstance(value, str) else "")
    except ValueError:
        raise refusal(
            "is not a release of RKE2",
            "write all of its parts, like v1.35.7+rke2r1; a channel would be another version with every run",
        ) from None
    return value


def _endpoint(value: str) -> str:
    if not value.startswith(("https://", "http://")):
        raise refusal(
            "is not an address of a registry", "write one like https://mirror.example.com"
        )
    if "@" in value.split("/")[2]:
        raise refusal(
            "has an account in it, with which every pod of the machines would pull",
            "write the address alone; registries with passwords are for registry-auth of a tenant or of rke2",
        )
    return value


Rke2Version = Annotated[str, BeforeValidator(_version, json_schema_input_type=str)]
_DIGEST = (
    "is not a sha256",
    "write the 64 digits that `sha256sum sha256sum-amd64.txt` prints for the release's file",
)
Digest = Annotated[
    Text,
    AfterValidator(lambda value: value.lower().removeprefix("sha256:")),
    matches("[0-9a-f]{64}", *_DIGEST),
]
_RELEASE_URL = ("is not an https address", f"write one like {RELEASES}")
ReleaseUrl = Annotated[
    Text, matches("https://.*", *_RELEASE_URL), AfterValidator(lambda value: value.rstrip("/"))
]
_FOLDER = ("is not the absolute path of a folder", "write one like /opt/rke2-artifacts")
Folder = Annotated[
    Text,
    matches(r"(?!.*/\.\.(/|$))/.*", *_FOLDER),
    AfterValidator(lambda value: value.rstrip("/") or "/"),
]
_IMAGE_ARCHIVE = (
    "is not an archive of images of a release",
    "write its name: rke2-images-core.linux-amd64.tar.zst, rke2-images-cilium.linux-amd64.tar.zst",
)
ImageArchive = Annotated[Text, matches("rke2-images[^/]*", *_IMAGE_ARCHIVE)]
Endpoint = Annotated[Text, AfterValidator(_endpoint)]


class DownloadedArtifacts(Section):
    """Every machine downloads the release itself and compares it with its digests."""

    source: Literal["download"]
    """Where the files of the release come from."""
    url: ReleaseUrl = RELEASES
    """Address of the releases, up to and without the version; of a mirror where there is one."""
    checksum: Digest
    """sha256 of the release's sha256sum-amd64.txt, which names the digest of every other file."""
    images: tuple[ImageArchive, ...] = ()
    """Archives of images to bring along, so that nothing is pulled for RKE2 itself."""


class LocalArtifacts(Section):
    """The release lies in a folder of every machine already, as in a closed network."""

    source: Literal["folder"]
    """Where the files of the release come from."""
    folder: Folder
    """Folder on every machine with rke2.linux-amd64.tar.gz, sha256sum-amd64.txt and the images."""
    checksum: Digest
    """sha256 of the release's sha256sum-amd64.txt, which names the digest of every other file."""
    images: tuple[ImageArchive, ...] = (
        "rke2-images-core.linux-amd64.tar.zst",
        "rke2-images-cilium.linux-amd64.tar.zst",
    )
    """Archives of images in that folder."""


class Rke2Server(Section):
    """A machine that runs API server and etcd. Not one with GPUs, unless there is no other."""

    name: DnsLabel
    """Name of the machine and of its node. Without an address: a machine of hosts.machines or of the lab."""
    address: Address | None = None
    """Host name or IP address that SSH connects to, if the machine is not listed elsewhere."""
    port: Port = 22
    """Port of its SSH server."""
    host_key: HostKey | None = None
    """Public host key; needed with an address."""


class Mirror(Section):
    """Where images of one registry are pulled from instead."""

    endpoints: tuple[Endpoint, ...]
    """Tried in this order."""
    rewrite: dict[str, str] = Field(default_factory=dict)
    """Regular expression to replacement, for the path of an image on the mirror."""


class CiliumSettings(Section):
    """Cilium beside what `network` says of it. A running cluster keeps its CNI."""

    policy_enforcement: PolicyEnforcement = PolicyEnforcement.DEFAULT
    """policyEnforcementMode. With always also system pods need policies, or nothing starts."""
    encryption: Encryption = Encryption.NONE
    """Whether traffic between nodes is encrypted: none or wireguard."""
    mtu: Annotated[int, Strict(), Field(ge=1280, le=9216)] | None = None
    """MTU of the pods' network; found by itself if it is not stated."""
    host_firewall: Flag = False
    """Whether policies may select nodes too. They close nothing until one does."""


class Rke2Common(Section):
    """What every cluster by RKE2 states, whatever type of cluster it belongs to."""

    artifacts: Annotated[DownloadedArtifacts | LocalArtifacts, Field(discriminator="source")]
    """The files of the release, by digest."""
    registration_address: Address | None = None
    """Fixed address of all servers, ports 9345 and 6443: a virtual IP, a load balancer, DNS. Needed for more
    than one; by default the address of the only one."""
    tls_san: tuple[Address, ...] = ()
    """More names and addresses of the API in its certificate."""
    cluster_domain: DnsName = "cluster.local"
    """DNS domain of services."""
    cis_profile: Flag = False
    """profile: cis. Every namespace enforces the Pod Security level restricted then, unless labelled."""
    selinux: Flag = False
    """selinux: true. The package rke2-selinux must be installed."""
    dedicated_servers: Flag = True
    """Whether the servers are tainted, so that they carry nothing but the cluster itself."""
    disabled_charts: tuple[DnsLabel, ...] = (
        "rke2-ingress-nginx",
        "rke2-traefik",
        "rke2-traefik-crd",
        "rke2-security-responder",
    )
    """Charts of RKE2 that are not installed. An Ingress of class nginx or traefik needs theirs;
    rke2-security-responder (from v1.37) reports on the cluster to RKE2's makers."""
    deny_external_ips: Flag = True
    """Whether the API server refuses services with external IPs, by which one tenant could take traffic of
    another. Cilium from 1.19 has no switch for them."""
    system_default_registry: Text | None = None
    """Registry that RKE2's own images are pulled from."""
    mirrors: dict[Text, Mirror] = Field(default_factory=dict)
    """Mirrors by registry: docker.io, nvcr.io, or * for all."""
    default_runtime: Text | None = None
    """Refused: RKE2 does not start while the program of that runtime is missing, and CDI needs none."""
    environment: dict[Text, Text] = Field(default_factory=dict)
    """Variables of the units: HTTP_PROXY, HTTPS_PROXY, NO_PROXY and their CONTAINERD_ forms."""
    etcd_snapshot_cron: Text = "0 */12 * * *"
    """When etcd is snapshotted on every server."""
    etcd_snapshot_retention: Count = 5
    """How many snapshots each server keeps."""
    agents_at_once: Annotated[int, Strict(), Field(ge=1, le=MOST_AGENTS_AT_ONCE)] = 10
    """How many agents join, or are upgraded, at the same time."""
    join_timeout_seconds: Seconds = 900
    """How long one machine may take from its start until its node is Ready."""
    drain_timeout_seconds: Annotated[int, Strict(), Field(ge=0, le=86_400)] = 1800
    """How long pods may take to leave a node before its upgrade or removal. 0: they stay."""


class Rke2Settings(Rke2Common):
    """What a cluster by RKE2 has beside what every cluster has."""

    servers: tuple[Rke2Server, ...]
    """1, 3 or 5 machines; the first one makes the cluster."""
    cilium: CiliumSettings = Field(default_factory=CiliumSettings)
    """Cilium."""
