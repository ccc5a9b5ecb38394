"""The catalogue of drift. Ids are for ever: scripts and `--ignore` name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuclusters.core import codes
from gpuclusters.core.codes import Severity
from gpuclusters.drift.kind import Group, Kind

_C, _W, _N = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE
_UP = "`gpu-clusters up --refresh`"
_UNDRAINED = "restart {where} once nothing runs on it"
_LOOK_ON = "look on {where} who does that, then `gpu-clusters up --refresh`"

_HOSTS = (
    Kind("host-unreachable", Group.HOSTS, _C, "cannot be reached",
         "see that {where} is up and that address, port and firewall are right"),
    Kind("host-key-changed", Group.HOSTS, _C, "shows another host key than the pinned one",
         "find out why on its own console; a machine installed anew needs its new key in the stack"),
    Kind("host-refuses", Group.HOSTS, _C, "lets us in no more, or not as root",
         "see that the account of the stack still exists on {where} and may use sudo"),
    Kind("machine-unfit", Group.HOSTS, _C, "is not fit for what it carries", _LOOK_ON),
    Kind("reboot-pending", Group.HOSTS, _W, "waits for a restart", _UNDRAINED),
    Kind("unit-failed", Group.HOSTS, _W, "a systemd unit has failed",
         "`systemctl status {what}` and `journalctl -u {what}` on {where}"),
    Kind("partition-inactive", Group.HOSTS, _C, "a declared partition is not active", _LOOK_ON),
    Kind("partition-foreign", Group.HOSTS, _C, "a partition is active that nobody declared", _LOOK_ON),
    Kind("fabric-warning", Group.HOSTS, _W, "the fabric is not well", "docs/fabric.md has what to do"),
    Kind("fabric-manager-restarted", Group.HOSTS, _W, "the fabric manager has started anew since", _LOOK_ON),
    Kind("fabric-manager-not-ready", Group.HOSTS, _C, "the fabric manager does not serve", _LOOK_ON),
    Kind("firmware-changed", Group.HOSTS, _C, "firmware is not of the golden set",
         "find out who flashed it; flash the accepted version, or accept this one in leases.golden-firmware"),
)  # fmt: skip

_CLUSTER = (
    Kind("node-missing", Group.CLUSTER, _C, "is not in the cluster",
         "see that its kubelet runs; `gpu-clusters up --refresh` joins what is gone"),
    Kind("node-unknown", Group.CLUSTER, _W, "is in the cluster and not in the stack",
         "declare it, or `kubectl delete node {where}` once its kubelet is stopped"),
    Kind("node-not-ready", Group.CLUSTER, _C, "is not Ready", "`kubectl describe node {where}`"),
    Kind("node-cordoned", Group.CLUSTER, _W, "takes no new pods",
         "`kubectl uncordon {where}`, or declare its maintenance where the type has that"),
    Kind("node-label-changed", Group.CLUSTER, _W, "a label is not as declared",
         "`kubectl label node {where} {declared} --overwrite`"),
    Kind("node-label-missing", Group.CLUSTER, _W, "a label is gone",
         "`kubectl label node {where} {declared}`"),
    Kind("node-taint-missing", Group.CLUSTER, _W, "a taint is gone",
         "`kubectl taint node {where} {declared}`"),
    Kind("node-taint-unknown", Group.CLUSTER, _W, "has a taint that nobody declared",
         "`kubectl taint node {where} {found}-`"),
    Kind("allocatable-lower", Group.CLUSTER, _C, "offers fewer GPUs than it has",
         "look at the pod of the device plugin on {where}, and for XID errors in `dmesg`"),
    Kind("allocatable-higher", Group.CLUSTER, _C, "offers more GPUs than declared",
         "find out which device plugin announces them on {where}"),
    Kind("lease-missing", Group.CLUSTER, _C, "a GPU has no lease",
         "the controllers make it; look at their pods"),
    Kind("lease-unknown", Group.CLUSTER, _W, "a lease is of no GPU of the stack",
         "`kubectl delete gpulease {what}` once nobody holds it"),
    Kind("lease-quarantined", Group.CLUSTER, _C, "a GPU is in quarantine",
         "put its cause right, then `kubectl annotate gpulease {what} gpu-clusters.dev/recheck=$(date +%s) "
         "--overwrite`"),
    Kind("lease-stuck", Group.CLUSTER, _C, "a lease is past its deadline",
         "look at the pod that leads the controllers: it quarantines what is past its deadline"),
    Kind("gpu-operator-not-ready", Group.CLUSTER, _C, "the GPU Operator is not ready",
         "`kubectl get clusterpolicies` and the pods in its namespace"),
    Kind("mig-layout-changed", Group.CLUSTER, _C, "GPUs are cut in another way", _LOOK_ON),
)  # fmt: skip

_TENANTS = (
    Kind("tenancy-missing", Group.TENANTS, _C, "the Tenancy object is gone", _UP),
    Kind("tenancy-changed", Group.TENANTS, _C, "the Tenancy object was changed", _UP),
    Kind("tenancy-unknown", Group.TENANTS, _W, "a Tenancy is not in the stack",
         "declare the tenant, or `kubectl delete tenancy {what}`"),
    Kind("tenancy-not-enforced", Group.TENANTS, _C, "isolation is not enforced",
         "look at the controllers, then `gpu-clusters up --refresh`"),
    Kind("quota-changed", Group.TENANTS, _C, "the quota is not what was declared",
         "the controllers put it back; look whether they run"),
    Kind("limit-range-changed", Group.TENANTS, _C, "the limits are not what was declared",
         "the controllers put them back; look whether they run"),
    Kind("network-policy-missing", Group.TENANTS, _C, "the network policy does not protect the tenant",
         "the controllers put it back; look whether they run"),
    Kind("admission-policy-changed", Group.TENANTS, _C, "the admission policy does not hold", _UP),
)  # fmt: skip

_RESTORE = (
    "`helm get manifest {what} -n {where} | kubectl apply --server-side --force-conflicts -f -` puts the "
    "objects of the release back"
)
_HELM = (
    Kind("helm-object-missing", Group.HELM, _C, "an object of a release is gone", _RESTORE),
    Kind("helm-object-changed", Group.HELM, _W, "an object of a release was changed", _RESTORE),
    Kind("helm-object-extra", Group.HELM, _N, "an object says it is of a release that does not have it",
         "`kubectl delete` it, if nobody needs it"),
    Kind("helm-release-missing", Group.HELM, _C, "a release is gone", _UP),
    Kind("helm-release-not-deployed", Group.HELM, _C, "a release is not deployed",
         "`helm history {what} -n {where}` says what happened"),
    Kind("helm-release-changed", Group.HELM, _W, "a release is of another chart or version", _UP),
)  # fmt: skip

_STACK = (
    Kind("object-missing", Group.STACK, _C, "an object of the cluster is gone", _UP),
    Kind("object-changed", Group.STACK, _W, "an object of the cluster was changed", _UP),
    Kind("resource-missing", Group.STACK, _C, "a resource is gone", _UP),
    Kind("resource-changed", Group.STACK, _W, "a resource is not as it was left", _UP),
)  # fmt: skip

_GROUPS = {"gpu": Group.CLUSTER}
"""By area of a code, where it is not about machines."""


def _group(code: str) -> Group:
    return _GROUPS.get(code.partition(".")[0], Group.HOSTS)


def _of(id_: str, code: codes.Code) -> Kind:
    return Kind(id_, _group(id_), code.severity or _C, code.means.rstrip("."), code.do)


_CODES = (_of(id_, code) for id_, code in codes.listed().items() if code.severity)
KINDS: Final[Mapping[str, Kind]] = {
    kind.id: kind for kind in (*_HOSTS, *_CLUSTER, *_TENANTS, *_HELM, *_STACK, *_CODES)
}
"""By id."""


def kind_of(id_: str) -> Kind:
    """A kind of drift; any other code, which a refresh may find too, is critical.

    Raises:
        KeyError: nobody has listed it.
    """
    return KINDS.get(id_) or _of(id_, codes.listed()[id_])
