"""Why a step of a node failed, from what `make`, Docker and kubeadm said: known causes, with the fix. Pure.

The first that fits counts, so that what is nearer to the cause comes before what follows from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_QUOTE = 300


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause in words, and what to do."""

    cause: str
    remedy: str


_KNOWN: tuple[tuple[str, Reason], ...] = (
    (
        r"SHA256SUMS\.d/\S+: No such file|SHA256SUMS\.d/\S+.*not found",
        Reason(
            "the Dockerfile asks for checksums that this tag of Usernetes does not have: the files "
            "are of two tags",
            "state the digest of the archive of exactly this tag, and leave upstream's files as they are",
        ),
    ),
    (
        r"Version '(\S+)' for '(\S*nvidia\S*)' was not found",
        Reason(
            "NVIDIA's repository has no container toolkit of this version for the node image",
            "state a version of the container toolkit that the repository has (`apt-cache madison "
            "nvidia-container-toolkit` on the host)",
        ),
    ),
    (
        r"unresolvable CDI devices|could not select device driver \"?cdi",
        Reason(
            "the rootless Docker of the host does not know the CDI device nvidia.com/gpu=all",
            "look at `docker info` there: the folder of the CDI specification has to be there before "
            "the daemon "
            "starts; `gpu-clusters up` prepares the host and restarts it",
        ),
    ),
    (
        r"port is already allocated|address already in use",
        Reason(
            "one of the node's ports is taken on the host",
            "find out by whom (`ss -lntup`), end it, or state other ports for the whole cluster",
        ),
    ),
    (
        r"Pool overlaps with other one|invalid pool request|overlaps with an existing",
        Reason(
            "the node's own network overlaps with another one on the host",
            "give the host another number, or state another range for node-subnets",
        ),
    ),
    (
        r"rp_filter\\?\"? must be 0",
        Reason(
            "net.ipv4.conf.default.rp_filter is 1 where the rootless daemon runs: packets of other "
            "nodes are dropped",
            "set it to 2 in /etc/sysctl.d, `sysctl --system`, then restart the rootless Docker",
        ),
    ),
    (
        r"cpu controller needs to be delegated",
        Reason(
            "the account's systemd has no controller cpu",
            "write Delegate=cpu cpuset io memory pids for user@.service, then log the account out or reboot",
        ),
    ),
    (
        r"toomanyrequests|pull rate limit",
        Reason(
            "the registry of images lets nobody pull any more for a while",
            "wait, log in there on the host (`docker login`), or use a mirror",
        ),
    ),
    (
        r"no space left on device",
        Reason("the host's disk is full", "free some space there: `docker system df`"),
    ),
    (
        r"Could not resolve host|Temporary failure in name resolution|TLS handshake timeout|i/o "
        r"timeout.*registry"
        r"|failed to resolve source metadata|failed to do request",
        Reason(
            "the host does not reach the registries or download sites that the node image is built from",
            "let it out to docker.io, github.com, get.helm.sh and nvidia.github.io, or set a proxy "
            "for Docker",
        ),
    ),
    (
        r"could not find a JWS signature|token id .* is invalid for this cluster or it has expired"
        r"|failed to find (?:the )?token",
        Reason(
            "the control plane does not know the join token any more: it has expired",
            "compare the clocks of both hosts (`timedatectl`), raise join-token-hours if joining "
            "takes that long; "
            "every run makes a new token",
        ),
    ),
    (
        r"certificate has expired or is not yet valid",
        Reason(
            "the clocks of this host and of the control plane differ",
            "let chrony or systemd-timesyncd set both clocks (`timedatectl`)",
        ),
    ),
    (
        r"cluster CA found in cluster-info ConfigMap is invalid|none of the public keys .* are pinned",
        Reason(
            "another cluster answers at the control plane's address",
            "look which host has this address, then run again",
        ),
    ),
    (
        r"dial tcp .*: (?:connect: )?(?:connection refused|no route to host|i/o timeout)|context "
        r"deadline exceeded",
        Reason(
            "the control plane cannot be reached from there",
            "open its API port from this host to the control plane; look whether the node container "
            "runs there",
        ),
    ),
    (
        r"a Node with name .* and status \"Ready\" already exists",
        Reason(
            "the cluster has a node of this name already",
            "give the host another name, or delete that node (`kubectl delete node`) if its host is gone",
        ),
    ),
    (
        r"FileAvailable--etc-kubernetes|DirAvailable--var-lib-etcd|already exists",
        Reason(
            "the node's volumes keep the files of an earlier attempt",
            "run again: what was begun is reset first; if that does not help, `make down-v` there",
        ),
    ),
    (
        r"timed out waiting for the condition|isn't running or healthy|is not healthy after",
        Reason(
            "the kubelet in the node did not come up",
            "read `docker exec usernetes-node journalctl -u kubelet` there",
        ),
    ),
    (
        r"failed to initialize NVML|Failed to initialize NVML|ERROR_LIBRARY_NOT_FOUND|couldn't "
        r"communicate with the NVIDIA",
        Reason(
            "the node container has no access to the driver",
            "look at `nvidia-smi` on the host; the container gets its GPUs when it is made, so run again",
        ),
    ),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in _KNOWN)


def explain(text: str) -> Reason | None:
    """The known cause of what a step said; None if it says nothing that is known."""
    for pattern, reason in _COMPILED:
        if pattern.search(text):
            return reason
    return None


def last_words(text: str) -> str:
    """The last line that says something, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # make's own last line only says which target failed.
    told = [line for line in lines if not line.startswith(("make:", "make["))]
    return (told or lines or [""])[-1][:LONGEST_QUOTE]
