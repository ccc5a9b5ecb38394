"""The policy rules, in the order of their weight; docs/policy has a page for each."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gpuclusters.policy.passthrough import host_driver, shared_iommu_group
from gpuclusters.policy.rule import Parameters, Rule, Scope, Severity, Stack, Violation, each
from gpuclusters.review.plan import KEPT, Resource
from gpuclusters.review.text import SECRET, UNKNOWN

_FLOATING = {"latest", "stable", "main", "master", "edge", "nightly", "dev"}
_VERSION = re.compile(r"v?\d+(\.\d+)*([-+.][0-9A-Za-z.+-]+)?")


class PinParameters(Parameters):
    """What counts as pinned."""

    digests: bool = Field(
        default=False, description="Whether images need a digest; a tag is not enough then."
    )


def unpinned(resource: Resource, parameters: PinParameters) -> Iterator[str]:
    """Whatever does not say exactly which one it is."""
    if resource.type.startswith("kubernetes:helm.sh/"):
        yield from _chart(resource.inputs)
    for path, image in _images(resource.inputs):
        yield from _image(path, image, digests=parameters.digests)
    yield from _driver(resource)


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


def _image(path: str, image: str, *, digests: bool) -> Iterator[str]:
    if image in (SECRET, UNKNOWN) or "@sha256:" in image:
        return
    _, colon, tag = image.rsplit("/", 1)[-1].partition(":")
    if not colon:
        yield f"the image {image} ({path}) has neither tag nor digest"
    elif tag in _FLOATING:
        yield f"the image {image} ({path}) has a tag that moves"
    elif digests:
        yield f"the image {image} ({path}) has no digest"


def _driver(resource: Resource) -> Iterator[str]:
    if resource.type == f"{KEPT}GpuDriver":
        version = resource.at("version") or resource.at("driver_version")
        if resource.at("source") != "operator" and version in (None, "", "latest"):
            yield "the NVIDIA driver has no exact version: machines get whatever is newest on that day"
    is_operator = "gpu-operator" in str(resource.at("chart"))
    if is_operator and resource.at("values", "driver", "version") == "latest":
        yield "the GPU Operator's driver has no exact version"


_EVERYBODY = {4: 7, 6: 15}
"""Longest prefix that still means a good part of the internet, so that two halves are no way around."""


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"is no range of addresses ({error}); write one like 10.0.0.0/8") from None
    return text


class FirewallParameters(Parameters):
    """Whom a firewall may let in."""

    allowed: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(
        (),
        description="Ranges of addresses that sources must lie in; empty: any but everybody.",
    )


def open_firewall(resource: Resource, parameters: FirewallParameters) -> Iterator[str]:
    """A firewall rule or a load balancer that lets in whom it must not."""
    if resource.type == "gcp:compute/firewall:Firewall":
        props = resource.inputs
        closed = props.get("direction") == "EGRESS" or props.get("disabled") is True
        if closed or not props.get("allows"):
            return
        ranges = props.get("sourceRanges")
        named = props.get("sourceTags") or props.get("sourceServiceAccounts")
        if ranges is None and not named:
            yield "the firewall rule names no source, which means everybody"
        yield from _too_wide("the firewall", ranges, parameters.allowed)
    elif resource.type == "kubernetes:core/v1:Service":
        ranges = resource.at("spec", "loadBalancerSourceRanges")
        yield from _too_wide("the load balancer", ranges, parameters.allowed)


def _too_wide(who: str, ranges: Any, allowed: Sequence[str]) -> Iterator[str]:
    networks = []
    for text in ranges if isinstance(ranges, list) else []:
        try:
            networks.append(ipaddress.ip_network(str(text), strict=False))
        except ValueError:
            continue  # not known yet, or masked
    wide = sorted(str(n) for n in networks if n.prefixlen <= _EVERYBODY[n.version])
    if wide and not allowed:
        yield f"{who} lets everybody in ({', '.join(wide)})"
    if allowed:
        within = [ipaddress.ip_network(text) for text in allowed]
        beside = sorted(
            str(network)
            for network in networks
            if not any(
                network.version == one.version and network.subnet_of(one)  # type: ignore[arg-type]
                for one in within
            )
        )
        if beside:
            yield f"{who} lets in {', '.join(beside)}, which is not allowed"


def host_key(resource: Resource, _parameters: Parameters) -> Iterator[str]:
    """A connection to whoever answers."""
    reached = resource.at("connection")
    # A connection that is a secret as a whole cannot be looked into in a preview; ours always set the key.
    if not isinstance(reached, Mapping):
        return
    command, ours = resource.type.startswith("command:remote:"), resource.type.startswith(KEPT)
    key = "hostKey" if command else "host_key"
    if command and not reached.get(key):
        yield "the command runs on whatever machine answers: its connection has no hostKey"
    elif ours and not reached.get(key):
        yield "the machine is not asked to prove who it is: its connection has no host_key"
    proxy = reached.get("proxy")
    if (command or ours) and isinstance(proxy, Mapping) and proxy and not proxy.get(key):
        yield f"the way there goes through whatever machine answers: its proxy has no {key}"


STATEFUL = {
    f"{KEPT}TenancyPolicy": "a tenant",
    f"{KEPT}Rke2Tokens": "the cluster's tokens",
    "kubernetes:core/v1:Namespace": "a namespace",
    "kubernetes:core/v1:PersistentVolume": "a volume",
    "kubernetes:core/v1:PersistentVolumeClaim": "a volume's claim",
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": "a definition with all its objects",
    "gcp:compute/disk:Disk": "a disk",
    "gcp:compute/regionDisk:RegionDisk": "a disk",
    "gcp:storage/bucket:Bucket": "a bucket",
}
"""What cannot be made again as it was."""

_SERVER = re.compile(r"(^|[-_])(server|control-?plane|master|etcd)s?([-_]|\d|$)")


class ProtectionParameters(Parameters):
    """Where partitions have to be protected."""

    stacks: tuple[str, ...] = Field(
        ("prod", "prod-*", "*-prod", "production"),
        description="Patterns of the names of stacks that the rule looks at; `*` is any text.",
    )


def unprotected_partitions(resource: Resource, parameters: ProtectionParameters) -> Iterator[str]:
    """Partitions that any change may take away, in a production stack."""
    if resource.type != f"{KEPT}FabricPartitions" or resource.protect:
        return
    stack = resource.urn.partition("::")[0].rpartition(":")[2]
    if any(fnmatchcase(stack, pattern) for pattern in parameters.stacks):
        yield "the partitions of a board are not protected: any change that removes them goes through"


def stateful_delete(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """What is deleted and cannot be made again."""
    for resource in stack.deleted:
        if resource.type in STATEFUL:
            what = STATEFUL[resource.type]
            yield Violation(resource, f"{what} is deleted, with what only it holds")


def spot_servers(resource: Resource, _parameters: Parameters) -> Iterator[str]:
    """A machine of the control plane that can be taken away."""
    if resource.type not in ("gcp:compute/instance:Instance", f"{KEPT}GcpMachine"):
        return
    names = (resource.name, *(str(resource.at(*p) or "") for p in (["name"], ["labels", "role"])))
    if resource.is_spot and any(_SERVER.search(name) for name in names):
        yield "a machine of the control plane can be taken away at any time (spot)"


_TIME, _MPS = "by time", "by MPS"
_KEYS = {"timeSlicing": _TIME, "time_slicing": _TIME, "time-slicing": _TIME, "mps": _MPS}
_WHY = {
    _TIME: "no memory limit and no fault isolation between them",
    _MPS: "one server runs the kernels of all of them, and a fault of one ends the others",
}


def shared_gpus(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """GPUs that are handed out more than once, in a cluster with more than one tenant."""
    if stack.tenants < 2:
        return
    for resource in stack.resources:
        for how in sorted(_ways(resource.inputs)):
            says = f"GPUs are shared {how} among {stack.tenants} tenants: {_WHY[how]}"
            yield Violation(resource, says)


def _ways(value: Any) -> set[str]:
    """How GPUs are shared according to a value, or to a text within it that is the plugin's configuration."""
    if isinstance(value, Mapping):
        here = {
            how for key, how in _KEYS.items() if isinstance(value.get(key), Mapping) and value[key]
        }
        return here.union(*map(_ways, value.values()))
    if isinstance(value, list):
        return set().union(*map(_ways, value))
    if not isinstance(value, str) or "replicas:" not in value:
        return set()
    return {how for key, how in _KEYS.items() if f"{key}:" in value}


class BudgetParameters(Parameters):
    """How much, and at which prices."""

    monthly: float = Field(
        0,
        ge=0,
        description="The most that the stack may cost per month, in the currency of the price table; 0: no "
        "limit.",
    )
    refuse_unknown: bool = Field(
        default=False, description="Whether something without a price is a violation."
    )
    prices: dict[str, Any] = Field(
        default_factory=dict,
        description="Your prices, laid over those that come with the command, in the form of the file of "
        "`--prices`.",
    )


def over_budget(stack: Stack, parameters: BudgetParameters) -> Iterator[Violation]:
    """More than the stack may cost, as far as prices are known."""
    spending, blamed = stack.spending, stack.root
    if spending is None or blamed is None:
        return
    monthly, currency = spending.known_per_month, spending.table.currency
    if parameters.monthly and monthly > parameters.monthly:
        costs = f"{monthly:,.0f} {currency} a month of {parameters.monthly:,.0f}"
        yield Violation(blamed, f"over budget: {costs}")
    if parameters.refuse_unknown and spending.unknown:
        more = len(spending.unknown) - 3
        named = ", ".join(item.what for item in spending.unknown[:3])
        named += f" and {more} more" if more > 0 else ""
        yield Violation(blamed, f"nobody knows what this costs: {named}")


BUDGET = "budget"
"""Its finding is told with the money, not with the other rules."""

RULES: tuple[Rule, ...] = (
    Rule(
        "host-driver-on-passthrough", Severity.MANDATORY,
        "no NVIDIA driver on machines that pass their GPUs to VMs", Scope.STACK, host_driver,
    ),
    Rule(
        "shared-iommu-group", Severity.MANDATORY,
        "tenants get no GPUs that the IOMMU cannot keep apart", Scope.STACK, shared_iommu_group,
    ),
    Rule(
        "time-slicing-across-tenants", Severity.MANDATORY,
        "tenants do not share a GPU by time or by MPS", Scope.STACK, shared_gpus,
    ),
    Rule(
        "host-key", Severity.MANDATORY,
        "every machine proves who it is", Scope.RESOURCE, each(host_key),
    ),
    Rule(
        "open-firewall", Severity.MANDATORY,
        "no way in from everywhere", Scope.RESOURCE, each(open_firewall), FirewallParameters(),
    ),
    Rule(
        "spot-control-plane", Severity.MANDATORY,
        "no control plane on machines that can be taken away", Scope.RESOURCE, each(spot_servers),
    ),
    Rule(
        "stateful-delete", Severity.MANDATORY,
        "what cannot be made again is not deleted by the way", Scope.CHANGE, stateful_delete,
    ),
    Rule(
        BUDGET, Severity.MANDATORY,
        "the stack costs no more than it may", Scope.STACK, over_budget, BudgetParameters(),
    ),
    Rule(
        "unpinned", Severity.ADVISORY,
        "charts, images and drivers are pinned", Scope.RESOURCE, each(unpinned), PinParameters(),
    ),
    Rule(
        "partition-protect", Severity.ADVISORY,
        "partitions of production stacks are protected", Scope.RESOURCE,
        each(unprotected_partitions), ProtectionParameters(),
    ),
)  # fmt: skip
