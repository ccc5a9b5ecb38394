"""Faults of a host that runs rootless Docker with GPUs, by what its owner sees."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.hosts.service_vm.fabric_faults import BaseFault


class AccountOfDirectory(BaseFault):
    """The account comes from OS Login or another directory: no local entry, and no subordinate ids."""

    kind: Literal["account-of-directory"] = "account-of-directory"


class SubordinateIdsLost(BaseFault):
    """The account's ranges of subordinate ids are not found, whatever is written."""

    kind: Literal["subordinate-ids-lost"] = "subordinate-ids-lost"


class EngineIsRootful(BaseFault):
    """The daemon that answers at the account's socket does not run rootless."""

    kind: Literal["engine-is-rootful"] = "engine-is-rootful"


class RootfulContainers(BaseFault):
    """Docker runs as root on the host already, with containers of somebody else."""

    kind: Literal["rootful-containers"] = "rootful-containers"
    names: tuple[str, ...] = ("registry",)


class LegacyRuntime(BaseFault):
    """Something sets NVIDIA's container runtime back to its legacy mode."""

    kind: Literal["legacy-runtime"] = "legacy-runtime"
    no_cgroups: bool = False


class CdiInvisible(BaseFault):
    """The rootless daemon does not see the folder with the CDI specification."""

    kind: Literal["cdi-invisible"] = "cdi-invisible"


class CdiStale(BaseFault):
    """The CDI specification keeps the GPUs of another machine: it is not written anew."""

    kind: Literal["cdi-stale"] = "cdi-stale"


class CdiWithoutUuids(BaseFault):
    """The CDI specification names GPUs by index alone."""

    kind: Literal["cdi-without-uuids"] = "cdi-without-uuids"


class DaemonConfigurationIgnored(BaseFault):
    """The rootless daemon runs without its own daemon.json, so that it has no runtime `nvidia`."""

    kind: Literal["daemon-configuration-ignored"] = "daemon-configuration-ignored"


class OpenKernelModule(BaseFault):
    """The module on the disk is the open one, which Volta does not work with."""

    kind: Literal["open-kernel-module"] = "open-kernel-module"


class HoldsLost(BaseFault):
    """Something takes the holds off packages, so that the next upgrade brings another kernel."""

    kind: Literal["holds-lost"] = "holds-lost"


class LingerRefused(BaseFault):
    """Lingering is not allowed: what an account runs ends when it logs out."""

    kind: Literal["linger-refused"] = "linger-refused"


class DelegationIneffective(BaseFault):
    """The account's systemd has no controller `cpu`, whatever drop-ins say."""

    kind: Literal["delegation-ineffective"] = "delegation-ineffective"


class NerdctlRuns(BaseFault):
    """A rootless containerd of nerdctl lives under the same account."""

    kind: Literal["nerdctl-runs"] = "nerdctl-runs"


class UserNamespacesRestricted(BaseFault):
    """AppArmor keeps rootlesskit from making user namespaces: no profile allows it to."""

    kind: Literal["user-namespaces-restricted"] = "user-namespaces-restricted"


class UserBusGone(BaseFault):
    """The account's systemd cannot be reached: no bus."""

    kind: Literal["user-bus-gone"] = "user-bus-gone"


class NvmlLost(BaseFault):
    """A container loses its GPUs: systemd has reloaded and took the devices out of its cgroup."""

    kind: Literal["nvml-lost"] = "nvml-lost"


class ImageRefused(BaseFault):
    """The registry of images does not answer."""

    kind: Literal["image-refused"] = "image-refused"


class Slirp4netnsFails(BaseFault):
    """rootlesskit cannot set up its network with slirp4netns."""

    kind: Literal["slirp4netns-fails"] = "slirp4netns-fails"


class GpusReplaced(BaseFault):
    """The machine was made anew from its disk: its GPUs are others, with other UUIDs."""

    kind: Literal["gpus-replaced"] = "gpus-replaced"
    generation: int = Field(default=1, ge=1)


RootlessFault = (
    AccountOfDirectory
    | SubordinateIdsLost
    | EngineIsRootful
    | RootfulContainers
    | LegacyRuntime
    | CdiInvisible
    | CdiStale
    | CdiWithoutUuids
    | DaemonConfigurationIgnored
    | OpenKernelModule
    | HoldsLost
    | LingerRefused
    | DelegationIneffective
    | NerdctlRuns
    | UserNamespacesRestricted
    | UserBusGone
    | NvmlLost
    | ImageRefused
    | Slirp4netnsFails
    | GpusReplaced
)
