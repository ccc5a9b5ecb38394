"""Stand-in for `ss` (iproute2): who listens; the machine's own ports are out of sight."""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.rke2.rke2_faults import PortTaken

_SSH = 22


def run(call: Call) -> Answer:
    """`ss -Hltn`: state, queues, address, peer."""
    if call.arguments != ("-Hltn",):
        return Answer.error("ss: only -Hltn on a simulated host", 255)
    ports = [_SSH, *(fault.port for fault in call.faults.all(PortTaken))]
    return Answer.out("\n".join(f"LISTEN 0 4096 0.0.0.0:{port} 0.0.0.0:*" for port in ports))
