"""Effects on one machine: its fabric manager, its GPUs, its management controller.

Whoever changes partitions of the machine, a lease or the layout of its stack, holds `LOCK`, a file lock that
ends with its holder. Beside it lie two marks for each GPU, empty folders:

- **leased**: somebody has the GPU, or is about to. Set before its partition is activated for a lease,
  taken away before the GPU is reset. Whoever changes the layout looks for marks once it has the lock,
  and takes down nothing that has one. So of both at least one sees the other: a mark that is older
  than the look is seen by it; one that is younger belongs to an activation that has to wait for the
  lock. These lie under /run, which a restart of the machine empties, as it ends the VMs.
- **withheld**: the leases have taken the GPU's partition down, or want it down, and will bring it up
  themselves: the GPU is being recycled, or is in quarantine. Set, with the lock or before waiting for
  it, before the partition goes down and before the GPU is reset; taken away when the leases have
  activated a partition with the GPU, or where they keep none active when it is free. The layout
  activates nothing that has one. These outlive a restart of the machine, as a quarantine does. A mark
  that nobody takes away is a partition that stays down: wrong in the safe direction.
"""

import asyncio
import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import asyncssh

from caas.controllers.redfish import Redfish, RedfishError
from caas.settings import Host
from gpuclusters.fabric.answers import ALREADY_ACTIVE, ALREADY_INACTIVE, FabricError, code_of_exit
from gpuclusters.lease import board
from gpuclusters.lease.firmware import ASKED_AGAIN
from gpuclusters.lease.model import Phase, QuarantineReason

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 15
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
SESSIONS = 8
"""Commands at once; sshd's default allows ten sessions per connection."""
LOCK = "/run/lock/gpu-clusters-fabric"
MARKS = "/run/gpu-clusters-leases"
WITHHELD = "/var/lib/gpu-clusters/withheld"
LOCKED = 75
"""How `flock` ends when the lock was not to be had in time; no exit code of fmpm, which are 227 to 255."""
LOCK_SECONDS = 20.0
"""How long an activation waits for the lock; the machine of the leases asks again until its deadline."""
READ_SECONDS = 20.0
FABRIC_SECONDS = 60.0
_VERDICTS = {-10: QuarantineReason.NVLINK_ERROR, -11: QuarantineReason.PARTITION_UNSUPPORTED}
"""Answers of the fabric manager that it would give again."""
_FUSER_USED, _FUSER_UNUSED = 0, 1
_WITH_LOCK = ("flock", "--timeout", f"{LOCK_SECONDS:g}", "-E", str(LOCKED), LOCK)


class HostError(Exception):
    """The machine was not reached, or its answer cannot be understood; one sentence. A `verdict` is final."""

    def __init__(
        self, said: str, reason: QuarantineReason | None = None, *, verdict: bool = False
    ) -> None:
        super().__init__(said)
        self.reason, self.verdict = reason, verdict


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    stdout: str
    stderr: str

    def said(self, line: int = -1) -> str:
        """The last line of its standard error, or another one."""
        return (self.stderr.strip().splitlines() or [f"exit code {self.code}"])[line][:200]


class SshHost:
    """One machine. Commands run at once over one connection, which is made when one is wanted."""

    def __init__(self, host: Host, private_key: str) -> None:
        self._host, self._private_key = host, private_key
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._sessions = asyncio.Semaphore(SESSIONS)
        self._failures = 0
        self._not_before = 0.0

    async def run(self, command: Sequence[str], *, seconds: float) -> Done:
        """Run these words as root; the machine ends them after that time. `HostError` without an answer."""
        # `timeout` on the machine: what nobody waits for any more must not run on.
        line = shlex.join(["sudo", "-n", "timeout", "--kill-after=5", f"{seconds:g}", *command])
        try:
            async with asyncio.timeout(seconds + CONNECT_SECONDS), self._sessions:
                return await self._run(await self._connected(), line)
        except TimeoutError as error:
            said = f"{self._host.name}: no answer to {command[0]} within {seconds:g} s"
            raise HostError(said) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            await connection.wait_closed()

    async def _run(self, connection: asyncssh.SSHClientConnection, line: str) -> Done:
        name = self._host.name
        try:
            done = await connection.run(line, check=False, encoding="utf-8", errors="replace")
        except (OSError, asyncssh.Error) as error:
            if self._connection is connection:
                self._connection = None
            connection.abort()
            raise HostError(f"{name}: the connection broke: {error}") from error
        if done.exit_status is None or done.exit_status < 0:
            raise HostError(f"{name}: the command was ended by signal or broke off")
        return Done(done.exit_status, str(done.stdout or ""), str(done.stderr or ""))

    async def _connected(self) -> asyncssh.SSHClientConnection:
        name = self._host.name
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection
            wait = self._not_before - time.monotonic()
            if wait > 0:
                raise HostError(f"{name} is not reached; next try in {wait:.0f} s")
            try:
                self._connection = await self._connect()
            except (OSError, asyncssh.Error, TimeoutError) as error:
                pause = min(FIRST_PAUSE_SECONDS * 2.0**self._failures, LONGEST_PAUSE_SECONDS)
                self._failures += 1
                self._not_before = time.monotonic() + pause
                raise HostError(f"{name} is not reached: {_why(error)}") from error
            self._failures = 0
            return self._connection

    async def _connect(self) -> asyncssh.SSHClientConnection:
        to = self._host
        where = to.address if to.port == 22 else f"[{to.address}]:{to.port}"
        return await asyncssh.connect(
            to.address,
            to.port,
            username=to.user,
            client_keys=[asyncssh.import_private_key(self._private_key)],
            known_hosts=asyncssh.import_known_hosts(f"{where} {to.host_key}\n"),
            config=None,
            agent_path=None,
            connect_timeout=CONNECT_SECONDS,
            login_timeout=CONNECT_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
        )


def _why(error: BaseException) -> str:
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "it shows another host key than the one that is pinned"
    if isinstance(error, asyncssh.PermissionDenied):
        return "it does not accept the key of the controllers"
    return str(error) or type(error).__name__


class HostEffects:
    """Does what the machine of the leases wants of one host. Every failure is an outcome."""

    def __init__(
        self, host: Host, orders: board.Orders, ssh: SshHost, redfish: Redfish | None
    ) -> None:
        self._orders, self._ssh, self._redfish = orders, ssh, redfish
        self._host, self._fabric_manager = host.name, host.fabric_manager
        self._pci = {gpu.module: gpu.pci for gpu in host.gpus}
        self._locked = f"{host.name}: the layout is just being changed"

    async def do(self, effect: board.Effect) -> board.Outcome:
        try:
            return board.Succeeded(effect, await self._do(effect))
        except RedfishError as error:
            said, reason = f"{self._host}: {error}", error.reason
            verdict = reason is not None and reason not in ASKED_AGAIN
        except HostError as error:
            said, reason, verdict = str(error), error.reason, error.verdict
        return (board.Refused if verdict else board.Failed)(effect, said, reason)

    async def close(self) -> None:
        await self._ssh.close()
        if self._redfish is not None:
            await self._redfish.close()

    async def _do(self, effect: board.Effect) -> board.Result:
        limits, tables = self._orders.limits, self._orders.partitions
        match effect:
            case board.ReadBoard():
                (supported, active), users, marked = await asyncio.gather(
                    self._partitions(), self._users(), self._withheld()
                )
                return board.BoardSeen(supported, active, users, marked)
            case board.Withhold((module, _, phase)):
                # With the lock: who activates at this moment has ended, and who comes later sees the mark.
                marked_as = quarantined if phase is Phase.QUARANTINED else withheld
                marking = [*_WITH_LOCK, "mkdir", "-p", marked_as(self._pci[module])]
                done = await self._ssh.run(marking, seconds=READ_SECONDS + LOCK_SECONDS)
                self._check("mkdir", done)
            case board.Unfence(modules):
                await self._give_back(modules)
            case board.DeactivatePartition(partition):
                # Marks are set before the lock is waited for.
                await self._mark(withheld, tables[partition])
                await self._fabric("deactivate", partition, ALREADY_INACTIVE)
            case board.ActivatePartition(partition, entries):
                if entries:
                    await self._mark(mark, tables[partition])
                await self._fabric("activate", partition, ALREADY_ACTIVE)
                await self._give_back(tables[partition])
            case board.Reset(module):
                # The lease that had it has ended: nothing uses the GPU any more. Nor is it in quarantine.
                pci = self._pci[module]
                await self._must("rm", "-rf", mark(pci), quarantined(pci))
                await self._tool(module, limits.resetting, "--reset-with-sbr")
            case board.ClearMemory(module):
                # Without a reset it clears nothing.
                await self._tool(module, limits.scrubbing, "--clear-memory", "--reset-with-sbr")
            case board.ReadKnobs(module):
                known = [name for name in sorted(self._orders.golden.knobs) if name in _KNOBS]
                queries = (_KNOBS[name][0] for name in known)
                return knobs_in(await self._tool(module, limits.verifying, *queries))
            case board.ReadFirmware(module):
                if self._redfish is None:
                    raise HostError(f"{self._host} has no BMC in the settings")
                prefixes = sorted(self._orders.golden.versions)
                # Time for a second look, so that it is known why the first one failed.
                seconds = limits.verifying / 2
                return await self._redfish.inventory(module, prefixes, seconds)
            case _:
                raise TypeError(f"not an effect on a host: {effect}")
        return None

    async def _partitions(self) -> tuple[frozenset[int], frozenset[int]]:
        """Those that the fabric manager offers, and those that are active."""
        done = await self._fmpm(["-l"], READ_SECONDS)
        if done.code != 0:
            raise HostError(self._fabric_error("list partitions", done))
        try:
            rows = json.loads(done.stdout)["partitionInfo"] or ()
            table = {int(row["partitionId"]): bool(row["isActive"]) for row in rows}
        except (ValueError, KeyError, TypeError) as error:
            said = f"{self._host}: fmpm -l answered what is no table of partitions"
            raise HostError(said) from error
        return frozenset(table), frozenset(number for number, on in table.items() if on)

    async def _users(self) -> frozenset[int]:
        """Modules whose VFIO group a process holds open; asked one by one only where somebody holds any."""
        groups = await self._groups()
        if not await self._held(groups.values(), "its GPUs"):
            return frozenset()
        used = await asyncio.gather(
            *(self._held([group], f"GPU {self._pci[m]}") for m, group in groups.items())
        )
        return frozenset(m for m, held in zip(groups, used, strict=True) if held)

    async def _groups(self) -> dict[int, str]:
        modules = sorted(self._pci)
        found = await self._groups_of(modules)
        if len(found) != len(modules):
            # One is missing, and the answer does not say which.
            one_by_one = [(m, await self._groups_of([m])) for m in modules]
            if gone := [self._pci[module] for module, group in one_by_one if not group]:
                raise HostError(f"{self._host}: GPU {gone[0]} has no IOMMU group; is it there?")
            found = [group[0] for _, group in one_by_one]
        return dict(zip(modules, found, strict=True))

    async def _groups_of(self, modules: Sequence[int]) -> list[str]:
        links = [f"/sys/bus/pci/devices/{self._pci[m]}/iommu_group" for m in modules]
        done = await self._ssh.run(["readlink", "-e", *links], seconds=READ_SECONDS)
        names = (path.rsplit("/", 1)[-1] for path in done.stdout.split())
        return [name for name in names if name.isdecimal()]

    async def _held(self, groups: Iterable[str], what: str) -> bool:
        nodes = [f"/dev/vfio/{group}" for group in groups]
        done = await self._ssh.run(["fuser", *nodes], seconds=READ_SECONDS)
        if done.code == _FUSER_USED:
            return True
        if done.code == _FUSER_UNUSED and not done.stderr.strip():
            return False
        raise HostError(f"{self._host}: who uses {what} is unknown: {done.said(0)}")

    async def _fabric(self, verb: str, partition: int, already: int) -> None:
        asked = [f"-{verb[0]}", str(partition)]
        done = await self._fmpm(asked, FABRIC_SECONDS + LOCK_SECONDS, _WITH_LOCK)
        if done.code == LOCKED:
            raise HostError(self._locked)
        code = code_of_exit(done.code)
        if code not in (0, already):
            error = self._fabric_error(f"{verb} partition {partition}", done)
            raise HostError(error, _VERDICTS.get(code), verdict=code in _VERDICTS)

    async def _give_back(self, modules: Iterable[int]) -> None:
        """The leases keep the partitions of these GPUs down no longer."""
        await self._must("rm", "-rf", *(withheld(self._pci[m]) for m in sorted(modules)))

    async def _withheld(self) -> frozenset[int]:
        """Modules with such a mark; of a folder that cannot be read none: at worst a partition stays down."""
        done = await self._ssh.run(["ls", WITHHELD], seconds=READ_SECONDS)
        there = set(done.stdout.split()) if done.code == 0 else set()
        return frozenset(m for m, pci in self._pci.items() if pci in there)

    async def _mark(self, folder: Callable[[str], str], modules: Iterable[int]) -> None:
        await self._must("mkdir", "-p", *(folder(self._pci[m]) for m in modules))

    async def _must(self, *command: str) -> None:
        self._check(command[0], await self._ssh.run(command, seconds=READ_SECONDS))

    def _check(self, program: str, done: Done) -> None:
        if done.code == LOCKED:
            raise HostError(self._locked)
        if done.code != 0:
            raise HostError(f"{self._host}: {program}: {done.said()}")

    async def _fmpm(
        self, arguments: Sequence[str], seconds: float, within: Sequence[str] = ()
    ) -> Done:
        command = [*within, "fmpm", "--hostname", self._fabric_manager, *arguments]
        return await self._ssh.run(command, seconds=seconds)

    def _fabric_error(self, action: str, done: Done) -> str:
        said = (done.stdout or done.stderr).strip().splitlines()
        output = said[-1][:200] if said else ""
        return str(FabricError(self._host, action, code_of_exit(done.code), output))

    async def _tool(self, module: int, seconds: float, *options: str) -> str:
        pci = self._pci[module]
        # One at a time per GPU, also across controllers: what a dead one began is not met by another.
        # The GPU's own folder is the lock, which is there where the GPU is.
        lock = ["flock", "--nonblock", f"/sys/bus/pci/devices/{pci}"]
        command = [*lock, "nvidia_gpu_tools.py", "--devices", pci, *options]
        return judged(await self._ssh.run(command, seconds=seconds))


_FAULT = re.compile(
    r"^(?:(?:\S+\s+){0,2}(?:ERROR|CRITICAL)\b\s*|(?:\w+\.)*Gpu\w*: )(.*)$", re.MULTILINE
)
"""A line of its log of level ERROR or above, or the last line of a traceback about a GPU."""
_KNOBS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "ecc": ("--query-ecc-state", re.compile(r"\bECC is (\w+)\s*$", re.MULTILINE)),
    "mig": ("--query-mig-mode", re.compile(r"\bMIG mode is (\w+)\s*$", re.MULTILINE)),
    "cc": ("--query-cc-mode", re.compile(r"\bCC mode is (\w+)\s*$", re.MULTILINE)),
    "ppcie": ("--query-ppcie-mode", re.compile(r"\bPPCIe mode is (\w+)\s*$", re.MULTILINE)),
}


def judged(done: Done) -> str:
    """What `nvidia_gpu_tools.py` said, if it did what it was asked.

    The tool exits 0 when a GPU could not be reset or clearing is not supported, and only writes a line of
    level ERROR: a verdict. Without it and with another exit code the tool may not have run.
    """
    text = done.stdout + "\n" + done.stderr
    if said := _FAULT.findall(text):
        raise HostError(str(said[0]).strip()[:300], verdict=True)
    if done.code != 0:
        last = (done.stderr or done.stdout).strip().splitlines()
        raise HostError(f"exit code {done.code}: {last[-1][:200] if last else 'no output'}")
    return text


def knobs_in(text: str) -> Mapping[str, str]:
    found = {name: pattern.search(text) for name, (_, pattern) in _KNOBS.items()}
    return {name: match[1] for name, match in found.items() if match}


def mark(pci: str) -> str:
    """The mark of a GPU that a lease has, by its address as Linux writes it."""
    return f"{MARKS}/{pci}"


def withheld(pci: str) -> str:
    """The mark of a GPU whose partition the leases keep down."""
    return f"{WITHHELD}/{pci}"


def quarantined(pci: str) -> str:
    """Within that mark: the GPU is in quarantine, so that its partition stays down until somebody acts."""
    return f"{withheld(pci)}/quarantined"
