"""Faults of a simulated host: what can be made to go wrong, by name, while it runs.

    injecting.inject(folder, "hgx-01", DiskFull(path="/etc/cdi"))

A fault is called after its class: `DiskFull` is `disk-full`. Those of a host are kept in its `faults.json`,
which its server reads again for every connection and command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lab.files import read_json, write_json
from lab.hosts.folder import HostFolder
from lab.hosts.model import HostsError

KINDS: dict[str, type[Fault]] = {}
"""All faults by name."""
Module = Annotated[int, Field(ge=1, le=8)]
"""A GPU's number on the baseboard."""


class Fault(BaseModel):
    # Whoever injects or reads one needs few of the seventy: each is built when it is used.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    token: str = Field(default_factory=lambda: uuid4().hex)
    """Tells two equal faults apart, for those that end after some times."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if not cls.__name__.startswith("_"):
            KINDS[cls.kind()] = cls

    @classmethod
    def kind(cls) -> str:
        return re.sub("(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


_T = TypeVar("_T", bound=Fault)
_G = TypeVar("_G", bound="_GpuFault")


class Faults(tuple[Any, ...]):
    """The faults of one host at one moment."""

    __slots__ = ()

    def all(self, kind: type[_T]) -> Iterator[_T]:
        return (fault for fault in self if isinstance(fault, kind))

    def first(self, kind: type[_T]) -> _T | None:
        return next(self.all(kind), None)

    def of_gpu(self, kind: type[_G], module: int) -> _G | None:
        """A fault of this kind that concerns this GPU, if there is any."""
        return next((f for f in self.all(kind) if f.module in {None, module}), None)


def parse(kind: str, values: dict[str, Any]) -> Fault:
    """A fault from its name and values; `HostsError` says what is wrong with them."""
    if kind not in KINDS:
        raise HostsError(f"there is no fault {kind!r}; there are: {', '.join(sorted(KINDS))}")
    try:
        return KINDS[kind].model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()
        )
        raise HostsError(f"fault {kind!r}: {problems}") from None


def read(host: HostFolder) -> Faults:
    """The faults that are injected now."""
    return Faults(parse(one.pop("kind"), one) for one in read_json(host.faults) or ())


def write(host: HostFolder, faults: Faults) -> None:
    told = [{"kind": fault.kind(), **fault.model_dump(mode="json")} for fault in faults]
    write_json(host.faults, told)


class _CommandFault(Fault):
    command: str = ""
    """Regular expression, searched in the command line; empty: every command."""

    @field_validator("command")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def concerns(self, command: str) -> bool:
        """Whether this command is meant."""
        return re.search(self.command, command) is not None


class _GpuFault(Fault):
    """A fault of one GPU or of all."""

    module: Module | None = None
    """None: every GPU of the host."""


# The way in.


class DropConnectionAfter(Fault):
    """The connection breaks (reset) once this many bytes have passed, both ways together."""

    bytes: int = Field(ge=0)


class WrongHostKey(Fault):
    """The host shows another host key than the one it was set up with."""


class RefuseConnections(Fault):
    """Nothing listens on the host's port."""


class Hang(_CommandFault):
    """Matching commands never end; they can still be interrupted by closing the connection."""


class Slow(_CommandFault):
    """Matching commands start this many seconds late."""

    seconds: float = Field(ge=0)


class CommandFails(_CommandFault):
    """Matching commands are not run but answered with this; `times`: only so often, then run."""

    exit: int = Field(ge=0, le=255)
    stdout: str = ""
    stderr: str = ""
    times: int | None = Field(default=None, ge=1)


class SudoNeedsPassword(Fault):
    """`sudo` asks for a password, which `sudo -n` answers by failing."""


# Disk, packages and programs.


class DiskFull(Fault):
    """The file system that holds this folder has no space left."""

    path: str

    @field_validator("path")
    @classmethod
    def _is_a_folder_of_the_host(cls, value: str) -> str:
        if not value.startswith("/") or value == "/" or ".." in value.split("/"):
            raise ValueError("has to be the absolute path of a folder below /")
        return value.rstrip("/")


class PackageManagerLocked(Fault):
    """Another process holds the package manager's lock."""


class PackageInstallationCutOff(Fault):
    """An installation was killed in the middle: apt refuses everything until dpkg has finished it."""


class ToolMissing(Fault):
    """A command is not installed."""

    tool: str


class DiskNearlyFull(Fault):
    """The root file system has so little room left."""

    free_gib: int = Field(default=3, ge=0)


class ClockSkewed(Fault):
    """The clock of the host is wrong."""

    seconds: int = 400


class OldVersion(Fault):
    """A program of the host is of another version."""

    program: Literal["kernel", "qemu", "libvirt"] = "kernel"
    version: str = Field(default="6.8.0-51-generic", pattern=r"[0-9]+(\.[0-9]+)+[-+~a-z0-9]*")


class ProgramMissing(Fault):
    """A program, a device node or a firmware image of the host is not there."""

    program: Literal["qemu", "libvirt", "ovmf", "kvm"] = "qemu"


class DownloadRefused(Fault):
    """Downloads are answered with a status of HTTP that is an error."""

    status: int = Field(default=403, ge=400, le=599)


class PortTaken(Fault):
    """A program of the machine listens on a port."""

    port: int = Field(ge=1, le=65535)


# Boot and drivers.


class RebootNeverReturns(Fault):
    """After the next reboot the machine stays off the network until this fault is taken away."""


class BootsOldKernelLine(Fault):
    """The machine boots with the command line that it had: another boot entry is the default."""


class InitramfsFails(Fault):
    """`update-initramfs` or `dracut` ends with an error."""


class DeviceRefusesUnbind(Fault):
    """The driver of this function never lets go of it."""

    address: str


class DeviceHeld(Fault):
    """A process has the graphics node of this function open, as a display server would."""

    address: str
    pid: int = 1411


class SecureBoot(Fault):
    """The firmware boots signed code alone: modules that the machine built itself are refused."""


class GpuInUse(Fault):
    """A process computes on the machine's GPUs."""

    pid: int = 4711
    name: str = "python3"


class PackageGone(Fault):
    """The repository has packages of the driver no more: it is not set up, or they were withdrawn."""

    name: str = ""
    """Beginning of the packages' names; empty: all of the driver."""


# Hardware and the firmware's setup.


class IommuOff(Fault):
    """VT-d is off in the firmware setup: no DMAR table. `kernel`: it is there, the kernel makes no groups."""

    where: Literal["firmware", "kernel"] = "firmware"


class AcsMissing(Fault):
    """ACS is off above two GPUs: they share an IOMMU group."""

    modules: tuple[Module, Module] = (5, 7)


class ForeignDevice(Fault):
    """A network card with its driver sits in a GPU's IOMMU group."""

    module: Module = 1
    driver: str = "mlx5_core"


class GpuMissing(Fault):
    """The firmware did not find a GPU: there is nothing at its address."""

    module: Module = 1


class OtherDevice(Fault):
    """Another device is at a GPU's address."""

    module: Module = 1
    device: str = Field(default="1017", pattern="[0-9a-f]{4}")


class BarWrong(Fault):
    """A GPU's large memory window is not placed, is too small, or lies below 4 GiB."""

    module: Module = 1
    how: Literal["not-placed", "small", "below-4g"] = "not-placed"


class HostDriver(Fault):
    """A GPU driver of the host: `installed` as a package, or `loaded` as a module."""

    driver: Literal["nvidia", "nouveau"] = "nvidia"
    how: Literal["installed", "loaded"] = "loaded"


class VfioNodeMissing(Fault):
    """The kernel made no device node for a GPU's group."""

    module: Module = 1


class NotOnVfio(Fault):
    """A GPU lost its driver."""

    module: Module = 1


class Processor(Fault):
    """The processor shows other flags: virtualization switched off, or a machine that is itself a VM."""

    without: tuple[str, ...] = ()
    having: tuple[str, ...] = ()


class MemoryLost(Fault):
    """The machine has so much memory, no more; modules failed."""

    gib: int = Field(default=1536, ge=1)


class NumaNodes(Fault):
    """The firmware setup splits sockets into several NUMA nodes."""

    count: int = Field(default=4, ge=1, le=8)


# GPUs between tenants.


class ResetNotSupported(_GpuFault):
    """The bridge above the GPU is hidden: it cannot be reset, which the real tool reports with exit 0."""


class GpuFellOffTheBus(_GpuFault):
    """The GPU answers nothing but ones: `lspci` shows revision ff."""


class ResetHangs(_GpuFault):
    """A reset of the GPU never ends."""


class MemoryNotCleared(_GpuFault):
    """The GPU never reports that its memory is clear."""


class KnobsChanged(_GpuFault):
    """A knob reads like this whatever it is set to."""

    knob: Literal["ecc", "mig", "cc", "ppcie"] = "ecc"
    value: str = "disabled"


class FirmwareChanged(_GpuFault):
    """The inventory shows another firmware version for the GPU, as after a tenant's tampering."""

    version: str = "96.00.A5.00.FF"


class BmcSilent(Fault):
    """The management controller accepts connections and never says a word."""


# The fabric manager, its board and its virtual machine.


class FabricManager(Fault):
    """The fabric manager is initialising, not reachable, of another version, or sees link errors."""

    state: Literal["restarting", "down", "version-mismatch", "nvlink-error", "not-supported"]


class PartitionBusy(Fault):
    """The fabric manager answers "in use" whenever this partition is to be activated or dropped."""

    partition: int = Field(ge=0)


class PartitionUnsupported(Fault):
    """A GPU failed at start: the fabric manager leaves out the partitions that contain it."""

    module: Module


class FabricAnswers(Fault):
    """The fabric manager answers this code (fmReturn), and does nothing; `times`: only so often."""

    code: int = Field(ge=-29, le=-1)
    operation: Literal["list", "activate", "deactivate", "set", "any"] = "any"
    partition: int | None = Field(default=None, ge=0)
    times: int | None = Field(default=None, ge=1)


class FabricRestarts(Fault):
    """The fabric manager restarts right after this operation, once: what it was told before is forgotten."""

    after: Literal["list", "activate", "deactivate", "set"] = "list"


class LinksDegraded(Fault):
    """Some NVLinks of a GPU did not train: it lists fewer than there are at most."""

    module: Module
    available: int = Field(default=0, ge=0, le=18)


class ModuleMapShuffled(Fault):
    """The GPUs of two modules have changed places: each sits at the other's PCI address."""

    modules: tuple[Module, Module] = (1, 2)


class ModuleNameUnknown(Fault):
    """`nvidia_gpu_tools.py` knows no module name of the GPU in this module and stops there."""

    module: Module


class LibvirtDown(Fault):
    """libvirt's daemon does not run: `virsh` cannot connect."""


class VmDoesNotBoot(Fault):
    """VMs that are started show nothing on their console, for ever."""


class VmRefusesSsh(Fault):
    """Nothing listens on the SSH port of VMs."""


class FabricManagerStaysResident(Fault):
    """The fabric manager of a VM that boots fails at start and keeps its process: active, and silent."""


# RKE2.


class JoinFails(Fault):
    """The host cannot join: how its journal shows it."""

    why: Literal["wrong-token", "clock-skew", "duplicate-name", "port-closed", "server-lost"]


class JoinIsSlow(Fault):
    """Joining takes at least so long."""

    seconds: float = Field(ge=0)


# Rootless Docker.


class AccountOfDirectory(Fault):
    """The account comes from OS Login or another directory: no local entry, and no subordinate ids."""


class SubordinateIdsLost(Fault):
    """The account's ranges of subordinate ids are not found, whatever is written."""


class EngineIsRootful(Fault):
    """The daemon that answers at the account's socket does not run rootless."""


class RootfulContainers(Fault):
    """Docker runs as root on the host already, with containers of somebody else."""

    names: tuple[str, ...] = ("registry",)


class LegacyRuntime(Fault):
    """Something sets NVIDIA's container runtime back to its legacy mode."""

    no_cgroups: bool = False


class CdiInvisible(Fault):
    """The rootless daemon does not see the folder with the CDI specification."""


class CdiStale(Fault):
    """The CDI specification keeps the GPUs of another machine: it is not written anew."""


class CdiWithoutUuids(Fault):
    """The CDI specification names GPUs by index alone."""


class DaemonConfigurationIgnored(Fault):
    """The rootless daemon runs without its own daemon.json, so that it has no runtime `nvidia`."""


class OpenKernelModule(Fault):
    """The module on the disk is the open one, which Volta does not work with."""


class HoldsLost(Fault):
    """Something takes the holds off packages, so that the next upgrade brings another kernel."""


class LingerRefused(Fault):
    """Lingering is not allowed: what an account runs ends when it logs out."""


class DelegationIneffective(Fault):
    """The account's systemd has no controller `cpu`, whatever drop-ins say."""


class NerdctlRuns(Fault):
    """A rootless containerd of nerdctl lives under the same account."""


class UserNamespacesRestricted(Fault):
    """AppArmor keeps rootlesskit from making user namespaces: no profile allows it to."""


class UserBusGone(Fault):
    """The account's systemd cannot be reached: no bus."""


class NvmlLost(Fault):
    """A container loses its GPUs: systemd has reloaded and took the devices out of its cgroup."""


class ImageRefused(Fault):
    """The registry of images does not answer."""


class Slirp4netnsFails(Fault):
    """rootlesskit cannot set up its network with slirp4netns."""


class GpusReplaced(Fault):
    """The machine was made anew from its disk: its GPUs are others, with other UUIDs."""

    generation: int = Field(default=1, ge=1)


# Usernetes.


class NodeImageFails(Fault):
    """The node image cannot be built."""

    why: Literal["wrong-tag", "toolkit-version", "no-egress", "rate-limit", "disk-full"]


class NodeStartFails(Fault):
    """The node container cannot be started."""

    why: Literal["cdi-unresolvable", "port-taken", "subnet-overlap", "rp-filter", "delegation"]


class NodeGpusFail(Fault):
    """What sets up the GPUs in the node does not get where it should."""

    why: Literal["nvml", "index-names", "not-default-runtime", "legacy-mode"]


class NodeJoinFails(Fault):
    """kubeadm in the node ends with an error."""

    why: Literal["token-expired", "clock-skew", "port-closed", "other-cluster", "kubelet-down"]


class CidrAssignmentFails(Fault):
    """The node is not Ready for so long after it has joined, as seen when many join at once."""

    seconds: float = Field(default=1, ge=0)


class SyncFails(Fault):
    """`make sync-external-ip` ends with an error on this control plane."""


class FlannelStartsEarly(Fault):
    """flannel on this node starts before it can know the host's address."""
