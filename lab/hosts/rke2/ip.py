"""Stand-in for `ip`: the address that a simulated host goes out with, as `ip --json route get` says it.

A host that is one machine with a real node has that node's address. All others are on 127.0.0.1; each has an
address of its own here, by its port, as machines of one network have.
"""

from __future__ import annotations

import json

from lab.files import read_json
from lab.hosts.call import Answer, Call
from lab.hosts.rke2 import real_machine

_BYTE = 256


def run(call: Call) -> Answer:
    if call.arguments[:3] != ("--json", "route", "get"):
        return Answer.error(
            'Object "" is unknown on a simulated host, try "ip --json route get"', 1
        )
    node = real_machine.read(call.machine.folder)
    address = node.address if node is not None else _by_port(call)
    return Answer.out(json.dumps([{"dst": call.arguments[3], "dev": "ens4", "prefsrc": address}]))


def _by_port(call: Call) -> str:
    port = (read_json(call.machine.folder.identity) or {}).get("port") or 0
    return f"10.128.{port // _BYTE}.{port % _BYTE}"
