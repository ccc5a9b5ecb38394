"""The fabric manager of a board through NVIDIA's client `fmpm`, and the modules of its GPUs, over SSH.

Source: NVIDIA/Fabric-Manager-Client. The exit status is the lowest byte of fmReturn; errors are
plain text on standard output.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.errors import BusyError, CommandFailedError, InvalidAnswerError
from gpuclusters.core.facts import Facts
from gpuclusters.fabric import model
from gpuclusters.fabric.answers import FabricError, code_of_exit
from gpuclusters.fabric.decide import TOOL
from gpuclusters.host.script import command_error, last_lines, read_facts, run_script
from gpuclusters.host.ssh import Completed, SshHost

# fmReturn codes are small negative numbers; 126 and 127 are the shell's, 255 sshd's own too.
_LOWEST_CODE = -29

# Routes of a partition are programmed within a few seconds; the rest is what every command may take.
SECONDS_BESIDE_STEPS = 60.0
SECONDS_PER_STEP = 10.0


class SshFabricManager:
    """The fabric manager of one board; `FabricError` with its fmReturn code where it says no."""

    def __init__(self, host: SshHost, board: str, fabric_manager_host: str) -> None:
        self._host = host
        self._board = board
        self._hostname = fabric_manager_host

    @property
    def target(self) -> str:
        return f"{self._host.target}, board {self._board}"

    def partitions(self) -> model.LiveTable:
        """The table as the fabric manager has it, with what is active."""
        tried = "list the fabric partitions"
        return self._table(self._fmpm(["-l"], tried, repeatable=True).text, tried)

    def unsupported(self) -> Mapping[int, tuple[int, ...]]:
        """Partitions that it left out because one of their GPUs or links failed."""
        tried = "list the unsupported fabric partitions"
        done = self._fmpm(["--list-unsupported-partitions"], tried, repeatable=True)
        try:
            return {
                int(p["partitionId"]): tuple(sorted(int(m) for m in p["gpuPhysicalIds"] or ()))
                for p in json.loads(done.text)["partitionInfo"] or ()
            }
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(tried, "--list-unsupported-partitions", done.text) from error

    def change(self, steps: Sequence[model.FabricStep]) -> model.FabricChange:
        """Do these steps in order, up to the first that cannot be done; one round trip.

        Without steps only what is so: the table, and what leases have marked, at one moment.
        """
        tried = f"change fabric partitions ({', '.join(s.words for s in steps)})"
        if not steps:
            tried = "list the fabric partitions and the marks of leases"
        words = [f"{s.verb[0]}:{s.partition}:{','.join(s.addresses)}" for s in steps]
        done = run_script(
            self._host,
            "fabric/fabric_steps",
            [self._hostname, *words],
            tried=tried,
            after=("vfio/vfio_users",),
            timeout_seconds=SECONDS_BESIDE_STEPS + SECONDS_PER_STEP * len(steps),
        )
        head, marker, table = f"\n{done.text}".partition("\ntable\n")
        said = _Said.parse(head)
        finished = len(said.done) + len(said.left)
        left = tuple(int(of.split()[0].removeprefix("a:")) for of in said.left)
        if finished == len(steps) and (steps or marker):
            # The fabric manager may have been silent at the end of the change.
            silent = not marker or "\nfailed l: " in f"\n{table}"
            live = None if silent else self._table(table, tried)
            marks = model.LeaseMarks(said.quarantined | said.withheld, said.quarantined)
            return model.FabricChange(finished, left, live=live, marks=marks)
        for lines, holder in ((said.held, "process {}"), (said.leased, "a lease ({})")):
            if lines:
                name, _, who = lines[0].partition(" ")
                # Before the first step it can be a later one that is held.
                at = next((s for s in steps if name == f"d:{s.partition}"), steps[finished])
                return model.FabricChange(finished, left, held=f"{at.words}: {holder.format(who)}")
        if said.locked:
            raise BusyError(
                self.target,
                tried,
                "somebody else has been changing partitions of this machine for 20 s",
                "look there for a process that holds /run/lock/gpu-clusters-fabric, then run again",
            )
        status = said.failed[0].split()[-1] if said.failed else ""
        if not status.isdecimal():
            raise self._unreadable(tried, "(a change of partitions)", done.text)
        answer = Completed(int(status), "\n".join(said.said).encode(), "")
        error = self._error(answer, steps[finished].words)
        return model.FabricChange(finished, left, failed=error)

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        """Tell a restarted fabric manager which partitions were active."""
        # Each id once: fmpm loops for ever on a list with a duplicate.
        ids = ",".join(str(i) for i in sorted(set(partition_ids)))
        self._fmpm(["--set-activated-list", ids], f"set the list of active partitions to [{ids}]")

    def _fmpm(self, arguments: Sequence[str], tried: str, *, repeatable: bool = False) -> Completed:
        argv = ["fmpm", *arguments, "--hostname", self._hostname]
        done = self._host.run(argv, tried=tried, repeatable=repeatable)
        if done.status != 0:
            raise self._error(done, tried)
        return done

    def _error(self, done: Completed, tried: str) -> FabricError:
        """The error of a call that did not end with 0; raises where it is not the fabric manager's."""
        code = code_of_exit(done.status)
        if done.status < 0 or not _LOWEST_CODE <= code < 0:
            raise command_error(self._host, tried, done)
        words = last_lines(done.text + done.stderr)
        return FabricError(self.target, tried, code, words)

    def _table(self, content: str, tried: str) -> model.LiveTable:
        try:
            found = [_partition(row) for row in json.loads(content)["partitionInfo"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(tried, "-l", content) from error
        return {p.id: p for p in found}

    def _unreadable(self, tried: str, asked: str, content: str) -> InvalidAnswerError:
        problem = f"`fmpm {asked}` printed no partition table ({last_lines(content)[:200]})"
        remedy = "compare its version with the fabric manager's"
        return InvalidAnswerError(self.target, tried, problem, remedy)


def _partition(row: Mapping[str, Any]) -> model.LivePartition:
    up, most = "numNvLinksAvailable", "maxNumNvLinks"
    gpus = row["gpuInfo"]
    links = {int(g["physicalId"]): (int(g.get(up, 0)), int(g.get(most, 0))) for g in gpus}
    number, active = int(row["partitionId"]), bool(row["isActive"])
    return model.LivePartition(number, tuple(sorted(links)), active, links)


class _Said(Facts):
    """What `fabric_steps.sh` prints before the table."""

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Activations that leases do not want now."""
    held: tuple[str, ...] = ()
    """A step, and the processes that hold a GPU of it."""
    leased: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    quarantined: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()


_NOT_INSTALLED = 3
_LOCK = threading.Lock()
_READ: dict[tuple[str, str, int], dict[str, int]] = {}
"""What hosts answered in this process, which lives as long as one `up`."""
_ASKING: dict[tuple[str, str, int], threading.Lock] = {}
"""Held while a host is asked, so that who comes meanwhile waits for the same answer."""


class SshModuleMap:
    """Which GPU of a host sits in which module; asked once for all addresses."""

    def __init__(self, host: SshHost) -> None:
        self._host = host
        self._key = (host.connection.host, host.connection.address, host.connection.port)
        self.target = host.target

    def read(self, addresses: Sequence[str]) -> model.ModuleReading:
        """In which module the GPU at each address sits; the host remembers it until its next boot."""
        with _LOCK:
            asking = _ASKING.setdefault(self._key, threading.Lock())
        with asking:
            known = _READ.get(self._key, {})
            if all(address in known for address in addresses):
                return model.ModuleReading(modules={a: known[a] for a in addresses})
            reading = self._ask(addresses)
            _READ[self._key] = {**known, **reading.modules}
            return reading

    def _ask(self, addresses: Sequence[str]) -> model.ModuleReading:
        tried = "read which GPU sits in which module"
        done = run_script(
            self._host,
            "fabric/gpu_modules",
            addresses,
            tried=tried,
            after=("vfio/vfio_users",),
            repeatable=True,
            accept=(0, _NOT_INSTALLED),
        )
        if done.status == _NOT_INSTALLED:
            problem = f"{TOOL} is not installed, and without it or a driver nobody knows"
            remedy = (
                "install it from github.com/NVIDIA/gpu-admin-tools as a command on the host's PATH"
            )
            raise CommandFailedError(self.target, tried, problem, remedy)
        return read_facts(model.ModuleReading, self._host, done.text, tried=tried)
