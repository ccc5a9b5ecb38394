"""The fabric manager of a board, through NVIDIA's client `fmpm` on the host.

Source: NVIDIA/Fabric-Manager-Client. The exit status is the lowest byte of fmReturn; errors are
plain text on standard output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.scripts import command_error, last_lines
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.domain.fabric_state import FabricError, code_of_exit
from gpuclusters.domain.ports import LivePartition

# fmReturn codes are small negative numbers; 126 and 127 are the shell's, 255 sshd's own too.
_LOWEST_CODE = -29


class SshFabricManager:
    """`FabricManager` of one board."""

    def __init__(self, host: SshHost, board: str, fabric_manager_host: str) -> None:
        self._host = host
        self._board = board
        self._hostname = fabric_manager_host

    @property
    def place(self) -> str:
        """Host and board."""
        return f"{self._host.place}, board {self._board}"

    def partitions(self) -> Mapping[int, LivePartition]:
        """The table as the fabric manager has it, with what is active.

        Raises:
            FabricError: it answers with a code.
            AdapterError: not reached, or the answer is no partition table.
        """
        tried = "list the fabric partitions"
        done = self._fmpm(["-l"], tried, repeatable=True)
        try:
            document = json.loads(done.stdout)
            found = [
                LivePartition(
                    int(p["partitionId"]),
                    tuple(sorted(int(g["physicalId"]) for g in p["gpuInfo"])),
                    bool(p["isActive"]),
                )
                for p in document["partitionInfo"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidAnswerError(
                self.place,
                tried,
                "`fmpm -l` printed no partition table "
                f"({last_lines(done.stdout.decode(errors='replace'))[:200]})",
                "compare its version with the fabric manager's",
            ) from error
        return {p.id: p for p in found}

    def activate(self, partition_id: int) -> None:
        """Activate one partition.

        Raises:
            FabricError: it answers with a code.
            AdapterError: not reached.
        """
        self._fmpm(["-a", str(partition_id)], f"activate partition {partition_id}")

    def deactivate(self, partition_id: int) -> None:
        """Deactivate one partition.

        Raises:
            FabricError: it answers with a code.
            AdapterError: not reached.
        """
        self._fmpm(["-d", str(partition_id)], f"deactivate partition {partition_id}")

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        """Tell a restarted fabric manager which partitions were active.

        Raises:
            FabricError: it answers with a code.
            AdapterError: not reached.
        """
        # Each id once: fmpm loops for ever on a list with a duplicate.
        ids = ",".join(str(i) for i in sorted(set(partition_ids)))
        self._fmpm(["--set-activated-list", ids], f"set the list of active partitions to [{ids}]")

    def _fmpm(self, arguments: Sequence[str], tried: str, *, repeatable: bool = False) -> Completed:
        argv = ["fmpm", *arguments, "--hostname", self._hostname]
        done = self._host.run(argv, tried=tried, repeatable=repeatable)
        if done.status == 0:
            return done
        code = code_of_exit(done.status)
        if done.status < 0 or not _LOWEST_CODE <= code < 0:
            raise command_error(self._host, tried, done)
        words = last_lines(done.stdout.decode(errors="replace") + done.stderr)
        raise FabricError(self.place, tried, code, words)
