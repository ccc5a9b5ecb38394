"""Real nodes beside the lab's control plane: kubelet, containerd, runc, on one Linux machine with root.

    start(folder, NodesSpec(lab, (NodeSpec("hgx-01"),), images.basic()))

Each node is a set of namespaces (network, mounts, processes, name) with a first process of ours, in which
containerd and a kubelet run as on a machine of its own. Nodes are linked by a bridge; pods of one reach
those of another. docs/lab.md says what is real, what is a stand-in, and what is put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import on_demand

if TYPE_CHECKING:
    from lab.nodes.choice import Choice, Kind, MachineFacts, Wanted, choose
    from lab.nodes.entrances import entrance
    from lab.nodes.facts import machine_facts
    from lab.nodes.model import (
        BRIDGE,
        OWN_CAPACITY,
        TOOLS,
        NodesError,
        NodesSpec,
        NodesStatus,
        ProgramState,
        RunningNode,
    )
    from lab.nodes.process import command_in, start, status, stop
    from lab.nodes.requests import control, program_state
else:
    __getattr__ = on_demand.names(
        __name__,
        {
            "choice": "Choice Kind MachineFacts Wanted choose",
            "entrances": "entrance",
            "facts": "machine_facts",
            "model": "BRIDGE OWN_CAPACITY NodesError NodesSpec NodesStatus ProgramState RunningNode "
            "TOOLS",
            "process": "command_in start status stop",
            "requests": "control program_state",
        },
    )

__all__ = [
    "BRIDGE",
    "OWN_CAPACITY",
    "TOOLS",
    "Choice",
    "Kind",
    "MachineFacts",
    "NodesError",
    "NodesSpec",
    "NodesStatus",
    "ProgramState",
    "RunningNode",
    "Wanted",
    "choose",
    "command_in",
    "control",
    "entrance",
    "machine_facts",
    "program_state",
    "start",
    "status",
    "stop",
]
