"""The fabric manager's side: its state machine, apart from the command that asks it.

Sources: NVIDIA Fabric Manager User Guide (shared NVSwitch mode, resiliency restart) and
`nv_fm_types.h` for the codes.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from lab.hosts.faults import (
    FabricAnswers,
    FabricManager,
    FabricRestarts,
    Faults,
    LinksDegraded,
    PartitionBusy,
    PartitionUnsupported,
)
from lab.hosts.hardware import gpus
from lab.hosts.machine import Machine

INITIALISING_SECONDS = 0.3
"""How long a simulated fabric manager takes to start; a real one takes 10 s and more."""

UNIT = "nvidia-fabricmanager.service"
CONFIGURATION = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"


PREPARED_VM_ADDRESS = "192.168.250.2"
"""Where the service VM of a prepared machine listens: in the network of `prepared/network.xml`."""
CLIENT_VERSION = "595.58.03"
"""The version of `libnvfm` that the host's `fmpm` is built with."""


class Return(IntEnum):
    """`fmReturn_t`, as far as it answers with it without a fault."""

    SUCCESS = 0
    BADPARAM = -1
    NOT_SUPPORTED = -3
    TIMEOUT = -5
    VERSION_MISMATCH = -6
    IN_USE = -7
    NOT_CONFIGURED = -8
    CONNECTION_NOT_VALID = -9
    NVLINK_ERROR = -10
    RESOURCE_IN_USE = -12
    PARTITION_ID_IN_USE = -17
    PARTITION_ID_NOT_IN_USE = -18


@dataclass(frozen=True, slots=True)
class Configuration:
    mode: int
    resilient: bool
    bind_interface: str


def settings(text: str) -> dict[str, str]:
    """Keys and values of a fabricmanager.cfg."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.startswith("#"):
            values[key.strip()] = value.strip()
    return values


def configuration(machine: Machine) -> Configuration:
    """What the fabric manager was started with; the defaults are its own.

    That is the file in the VM that was powered on with it, else the one on the host, which stands
    for it as long as no VM was built.
    """
    power = (machine.state.get("fabric") or {}).get("power")
    values = power["config"] if power else settings(machine.read_text(CONFIGURATION) or "")
    return Configuration(
        mode=int(values.get("FABRIC_MODE", "0")),
        resilient=values.get("FABRIC_MODE_RESTART", "0") == "1",
        bind_interface=values.get("FM_CMD_BIND_INTERFACE", "127.0.0.1"),
    )


class Fabric:
    """The fabric manager of one host: which partitions are active, and whether it may be asked."""

    def __init__(self, machine: Machine, faults: Faults) -> None:
        self._machine = machine
        self._faults = faults
        self._board = machine.board
        self._state: dict[str, Any] = machine.state.setdefault(
            "fabric", {"active": [], "awaiting_list": False, "ready_at": 0.0}
        )

    @property
    def active(self) -> tuple[int, ...]:
        """The partitions that it believes to be active."""
        return tuple(self._state["active"])

    @property
    def version(self) -> str:
        """Version of the fabric manager that runs, or ran last."""
        power = self._state.get("power")
        return str(power["version"]) if power else CLIENT_VERSION

    def power_on(self, version: str, config: Mapping[str, str]) -> None:
        """The VM that holds the switches booted, with this fabric manager and fabricmanager.cfg.

        From then on the configuration is the VM's own and not a file of the host. Call it again to
        reboot the VM, or after a change of its configuration.

        Args:
            version: of the package in the VM, like "595.58.03".
            config: keys and values of its fabricmanager.cfg (`settings` reads them out of a text).
        """
        self._state["power"] = {"version": version, "config": dict(config), "on": True}
        self.started()

    def power_off(self) -> None:
        """The VM ended. What is routed stays routed; nobody answers until `power_on`."""
        power = self._state.get("power") or {"version": CLIENT_VERSION, "config": {}}
        self._state["power"] = {**power, "on": False}

    @property
    def powered(self) -> bool | None:
        """Whether the VM runs; None while only the host's own domain and service say so."""
        power = self._state.get("power")
        return None if power is None else bool(power["on"])

    def connect(self, host: str, *, running: bool) -> Return:
        """`fmConnect`: reachable on the address it was told to bind, and of our version.

        `running`: whether the service and its VM run, where `power_on` was never called.
        """
        fault = self._faults.first(FabricManager)
        answers = running if self.powered is None else self.powered
        if not answers or (fault and fault.state == "down"):
            return Return.CONNECTION_NOT_VALID
        known = {"localhost", configuration(self._machine).bind_interface}
        if self.powered is None:
            # A machine that came prepared: its service stands for a VM at the usual address too.
            known.add(PREPARED_VM_ADDRESS)
        if host not in known:
            return Return.TIMEOUT
        if self.version != CLIENT_VERSION or (fault and fault.state == "version-mismatch"):
            return Return.VERSION_MISMATCH
        return Return.SUCCESS

    def injected(self, operation: str, partition: int | None) -> int:
        """What a fault makes it answer to this operation instead of doing it."""
        seen: dict[str, int] = self._state.setdefault("answered", {})
        for fault in self._faults.all(FabricAnswers):
            meant = fault.operation in {operation, "any"} and fault.partition in {partition, None}
            if not meant or (fault.times is not None and seen.get(fault.token, 0) >= fault.times):
                continue
            seen[fault.token] = seen.get(fault.token, 0) + 1
            return fault.code
        return Return.SUCCESS

    def afterwards(self, operation: str) -> None:
        """What a fault makes happen once the operation is done."""
        done: list[str] = self._state.setdefault("restarted", [])
        for fault in self._faults.all(FabricRestarts):
            if fault.after == operation and fault.token not in done:
                done.append(fault.token)
                self.started()

    def links(self, module: int) -> int:
        degraded = [f for f in self._faults.all(LinksDegraded) if f.module == module]
        return degraded[0].available if degraded else self._machine.board.links_per_gpu

    def supported(self) -> tuple[int, ...]:
        failed = {fault.module for fault in self._faults.all(PartitionUnsupported)}
        partitions = self._board.partitions
        return tuple(n for n, modules in partitions.items() if failed.isdisjoint(modules))

    def ready(self) -> Return:
        """Whether queries are answered: not while initialising, and only in shared mode."""
        fault = self._faults.first(FabricManager)
        if fault and fault.state == "restarting":
            return Return.NOT_CONFIGURED
        if (fault and fault.state == "not-supported") or configuration(self._machine).mode != 1:
            return Return.NOT_SUPPORTED
        if time.time() < self._state["ready_at"]:
            return Return.NOT_CONFIGURED
        return Return.SUCCESS

    def activate(self, partition_id: int) -> Return:
        """`fmActivateFabricPartition`."""
        refusal = self._changeable(partition_id)
        if refusal:
            return refusal
        if partition_id in self.active:
            return Return.PARTITION_ID_IN_USE
        modules = set(self._board.modules(partition_id))
        if any(not modules.isdisjoint(self._board.modules(other)) for other in self.active):
            return Return.IN_USE
        fault = self._faults.first(FabricManager)
        if fault and fault.state == "nvlink-error":
            return Return.NVLINK_ERROR
        self._set([*self.active, partition_id], f"activate {partition_id}")
        self._train(modules)
        return Return.SUCCESS

    def deactivate(self, partition_id: int) -> Return:
        """`fmDeactivateFabricPartition`. It does not know of virtual machines, and so breaks them."""
        refusal = self._changeable(partition_id)
        if refusal:
            return refusal
        if partition_id not in self.active:
            return Return.PARTITION_ID_NOT_IN_USE
        self._set([p for p in self.active if p != partition_id], f"deactivate {partition_id}")
        return Return.SUCCESS

    def set_activated(self, partition_ids: Iterable[int]) -> Return:
        """`fmSetActivatedFabricPartitions`: what is active, told after a resilient restart."""
        refusal = self.ready()
        if refusal:
            return refusal
        ids = sorted(set(partition_ids))
        if not set(ids) <= set(self.supported()):
            return Return.BADPARAM
        modules = [m for p in ids for m in self._board.modules(p)]
        if len(modules) != len(set(modules)):
            return Return.IN_USE
        self._state["awaiting_list"] = False
        self._set(ids, f"set-activated {ids}")
        return Return.SUCCESS

    def started(self) -> None:
        """The service came up again.

        With FABRIC_MODE_RESTART=1 the switches still route what they routed, but the fabric
        manager lists nothing as active and changes nothing until it is told what is. Without it
        the switches are reset.
        """
        self._state["ready_at"] = time.time() + INITIALISING_SECONDS
        resilient = configuration(self._machine).resilient
        self._state["awaiting_list"] = resilient
        self._set([], "start", routes_kept=resilient)

    def _train(self, modules: set[int]) -> None:
        """Connect GPUs that a reset had left without NVLinks; a single GPU has no partner."""
        known = gpus.read(self._machine.folder)
        for module in modules if len(modules) > 1 else ():
            if module in known and not known[module].links_trained:
                with gpus.change(self._machine.folder, module) as gpu:
                    gpu.links_trained = True

    def _changeable(self, partition_id: int) -> Return:
        refusal = self.ready()
        if refusal:
            return refusal
        if self._state["awaiting_list"]:
            return Return.NOT_CONFIGURED
        if partition_id not in self.supported():
            return Return.BADPARAM
        if any(fault.partition == partition_id for fault in self._faults.all(PartitionBusy)):
            return Return.RESOURCE_IN_USE
        return Return.SUCCESS

    def _set(self, ids: list[int], what: str, *, routes_kept: bool = False) -> None:
        dropped = set(self._state["active"]) - set(ids)
        self._state["active"] = sorted(ids)
        self._machine.note("fabric", change=what, active=self._state["active"])
        if routes_kept:
            return
        for partition, user in self._machine.partitions_in_use().items():
            if partition in dropped:
                self._machine.note(
                    "harm",
                    what=f"partition {partition} dropped under {user['holder']}",
                    partition=partition,
                )
