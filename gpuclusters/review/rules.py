"""The rules about GPU clusters that need only the declared resources; docs/review.md says why of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuclusters.review.findings import Rule, Severity, Subject, Violation, each
from gpuclusters.review.secrets import SECRET
from gpuclusters.review.text import UNKNOWN

DYNAMIC = "pulumi-python:dynamic/gpu:"
STATEFUL = {
    f"{DYNAMIC}TenancyPolicy": "a tenant",
    f"{DYNAMIC}Rke2Tokens": "the cluster's tokens",
    "kubernetes:core/v1:Namespace": "a namespace",
    "kubernetes:core/v1:PersistentVolume": "a volume",
    "kubernetes:core/v1:PersistentVolumeClaim": "a volume's claim",
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": "a definition with all its objects",
    "gcp:compute/disk:Disk": "a disk",
    "gcp:compute/regionDisk:RegionDisk": "a disk",
    "gcp:storage/bucket:Bucket": "a bucket",
}
"""What cannot be made again as it was."""

_ANYWHERE = {"0.0.0.0/0", "::/0"}
_FLOATING = {"latest", "stable", "main", "master", "edge", "nightly", "dev"}
_VERSION = re.compile(r"v?\d+(\.\d+)*([-+.][0-9A-Za-z.+-]+)?")
_SERVER = re.compile(r"(^|[-_])(server|control-?plane|master|etcd)s?([-_]|\d|$)")
_DRIVER_PACKAGE = re.compile(
    r"(?<![\w-])(?:nvidia-(?:driver|open|kernel|dkms|headless)|cuda-drivers)[\w.=:-]*"
)


def _protected(subject: Subject) -> Iterator[str]:
    if subject.type == f"{DYNAMIC}FabricPartitions" and not subject.protect:
        yield "the partitions of a board are not protected: any change that removes them goes through"


def _stateful(subjects: Iterable[Subject]) -> Iterator[Violation]:
    for subject in subjects:
        if subject.deleted and subject.type in STATEFUL:
            yield Violation(
                subject, f"{STATEFUL[subject.type]} is deleted, with what only it holds"
            )


def _pinned(subject: Subject) -> Iterator[str]:
    if subject.type.startswith("kubernetes:helm.sh/"):
        yield from _chart(subject.props)
    for path, image in _images(subject.props):
        yield from _image(path, image)
    yield from _driver(subject)


def _chart(props: Mapping[str, Any]) -> Iterator[str]:
    chart, version = props.get("chart"), props.get("version")
    if chart is None:
        return
    local = isinstance(chart, str) and (chart.endswith(".tgz") or chart.startswith((".", "/")))
    if local or SECRET in (chart, version) or version == UNKNOWN:
        return
    if not isinstance(version, str) or not version:
        yield f"the chart {chart} has no version: whatever is newest is installed"
    elif not _VERSION.fullmatch(version):
        yield f"the chart {chart} has a range or a name for a version ({version})"


def _images(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Images of pods: the texts called `image` of what lies in a list of containers."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            if key in ("containers", "initContainers") and isinstance(item, list):
                for container in item:
                    if isinstance(container, Mapping) and isinstance(container.get("image"), str):
                        yield below, container["image"]
            else:
                yield from _images(item, below)
    elif isinstance(value, list):
        for item in value:
            yield from _images(item, path)


def _image(path: str, image: str) -> Iterator[str]:
    if image in (SECRET, UNKNOWN) or "@sha256:" in image:
        return
    _, colon, tag = image.rsplit("/", 1)[-1].partition(":")
    if not colon:
        yield f"the image {image} ({path}) has neither tag nor digest"
    elif tag in _FLOATING:
        yield f"the image {image} ({path}) has a tag that moves"


def _driver(subject: Subject) -> Iterator[str]:
    kind = subject.type.removeprefix(DYNAMIC)
    if subject.type.startswith(DYNAMIC) and kind in ("GpuDriver", "DriverHost", "HostDriver"):
        version = subject.props.get("version") or subject.props.get("driver_version")
        if subject.props.get("source") != "operator" and version in (None, "", "latest"):
            yield "the NVIDIA driver has no exact version: machines get whatever is newest on that day"
    if subject.type.startswith("kubernetes:helm.sh/") and "gpu-operator" in str(
        subject.props.get("chart")
    ):
        values = subject.props.get("values")
        driver = values.get("driver") if isinstance(values, Mapping) else None
        if isinstance(driver, Mapping) and driver.get("version") == "latest":
            yield "the GPU Operator's driver has no exact version"


def _open_firewall(subject: Subject) -> Iterator[str]:
    if subject.type == "gcp:compute/firewall:Firewall":
        props = subject.props
        if (
            props.get("direction") == "EGRESS"
            or props.get("disabled") is True
            or not props.get("allows")
        ):
            return
        ranges = props.get("sourceRanges")
        if (
            ranges is None
            and not props.get("sourceTags")
            and not props.get("sourceServiceAccounts")
        ):
            yield "the firewall rule names no source, which means everybody"
        elif isinstance(ranges, list) and _ANYWHERE & set(map(str, ranges)):
            yield f"the firewall lets everybody in ({', '.join(sorted(_ANYWHERE & set(map(str, ranges))))})"
    elif subject.type == "kubernetes:core/v1:Service":
        spec = subject.props.get("spec")
        ranges = spec.get("loadBalancerSourceRanges") if isinstance(spec, Mapping) else None
        if isinstance(ranges, list) and _ANYWHERE & set(map(str, ranges)):
            yield "the load balancer lets everybody in"


def _host_key(subject: Subject) -> Iterator[str]:
    reached = subject.props.get("connection")
    # A connection that is a secret as a whole cannot be looked into; our own components always set the key.
    if not isinstance(reached, Mapping):
        return
    if subject.type.startswith("command:remote:") and not reached.get("hostKey"):
        yield "the command runs on whatever machine answers: its connection has no hostKey"
    elif subject.type.startswith(DYNAMIC) and not reached.get("host_key"):
        yield "the machine is not asked to prove who it is: its connection has no host_key"


def _spot_servers(subject: Subject) -> Iterator[str]:
    if subject.type not in ("gcp:compute/instance:Instance", f"{DYNAMIC}GcpMachine"):
        return
    scheduling = subject.props.get("scheduling")
    spot = subject.props.get("provisioning") == "spot" or (
        isinstance(scheduling, Mapping)
        and (scheduling.get("preemptible") is True or scheduling.get("provisioningModel") == "SPOT")
    )
    labels = subject.props.get("labels")
    role = str(labels.get("role", "")) if isinstance(labels, Mapping) else ""
    names = (subject.name, str(subject.props.get("name") or ""), role)
    if spot and any(_SERVER.search(name) for name in names):
        yield "a machine of the control plane can be taken away at any time (spot)"


def _host_driver(subjects: Iterable[Subject]) -> Iterator[Violation]:
    there = [subject for subject in subjects if not subject.deleted]
    passed = {_host(s) for s in there if s.type == f"{DYNAMIC}VfioBinding"} - {""}
    for subject in there:
        host = _host(subject)
        if subject.type.startswith(DYNAMIC) and "Driver" in subject.type and host in passed:
            yield Violation(
                subject, f"an NVIDIA driver is installed on {host}, which passes its GPUs to VMs"
            )
        elif subject.type == "command:remote:Command" and passed:
            found = _DRIVER_PACKAGE.search(str(subject.props.get("create") or ""))
            if found:
                yield Violation(
                    subject,
                    f"the command installs {found[0]} on a machine of a cluster that passes GPUs to VMs",
                )
        elif subject.type == f"{DYNAMIC}HostBoot" and host in passed:
            loads = [
                argument
                for argument in subject.props.get("kernel_arguments") or []
                if str(argument).startswith("module_blacklist=") and "nvidia" not in str(argument)
            ]
            if loads:
                yield Violation(subject, f"{host} does not keep the NVIDIA driver from loading")


def _host(subject: Subject) -> str:
    reached = subject.props.get("connection")
    return str(reached.get("host") or "") if isinstance(reached, Mapping) else ""


def _time_slicing(subjects: Iterable[Subject]) -> Iterator[Violation]:
    there = [subject for subject in subjects if not subject.deleted]
    tenants = {s.props.get("tenant") for s in there if s.type == f"{DYNAMIC}TenancyPolicy"}
    spaces = {s.name for s in there if s.type == "kubernetes:core/v1:ResourceQuota"}
    shared = max(len(tenants), len(spaces))
    if shared < 2:
        return
    for subject in there:
        if _slices(subject.props):
            yield Violation(
                subject,
                f"GPUs are shared by time among {shared} tenants: no memory limit and no fault isolation "
                "between them",
            )


def _slices(value: Any) -> bool:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if (
                key in ("timeSlicing", "time_slicing", "time-slicing")
                and isinstance(item, Mapping)
                and item
            ):
                return True
            if _slices(item):
                return True
        return False
    if isinstance(value, list):
        return any(map(_slices, value))
    return isinstance(value, str) and "timeSlicing:" in value and "replicas:" in value


RULES: tuple[Rule, ...] = (
    Rule(
        "host-driver-on-passthrough", Severity.MANDATORY,
        "no NVIDIA driver on machines that pass their GPUs to VMs", _host_driver,
    ),
    Rule(
        "time-slicing-across-tenants", Severity.MANDATORY,
        "tenants do not share a GPU by time", _time_slicing,
    ),
    Rule("host-key", Severity.MANDATORY, "every machine proves who it is", each(_host_key)),
    Rule("open-firewall", Severity.MANDATORY, "no way in from everywhere", each(_open_firewall)),
    Rule(
        "spot-control-plane", Severity.MANDATORY,
        "no control plane on machines that can be taken away", each(_spot_servers),
    ),
    Rule(
        "stateful-delete", Severity.MANDATORY,
        "what cannot be made again is not deleted by the way", _stateful,
    ),
    Rule("unpinned", Severity.ADVISORY, "charts, images and drivers are pinned", each(_pinned)),
    Rule("partition-protect", Severity.ADVISORY, "partitions are protected", each(_protected)),
)  # fmt: skip
"""In the order of their weight. The budget is a rule of a plan's cost: `verdict`."""
