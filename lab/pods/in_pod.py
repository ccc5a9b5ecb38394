"""Runs a Python program as in a pod: names come from the cluster's DNS, and the node decides what it reaches.

    python -m lab.pods.in_pod PROGRAM [ARGUMENT…]

Only what a network between nodes decides is played: which names are known, and whether packets get through.
The connections themselves are real ones over loopback. A training is played, as nobody has PyTorch here.
"""

import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from lab.pods import cluster_dns, rootless, training
from lab.pods.cluster_dns import Name
from lab.pods.names import FOLDER_VARIABLE, NAMESPACE_VARIABLE, NODE_VARIABLE
from lab.pods.rootless import InNode

_TRAINING = "train.py"
_lookup = socket.getaddrinfo
_connect = socket.socket.connect


class Network:
    def __init__(self, kubelets: Path, node: str, namespace: str) -> None:
        self._kubelets = kubelets
        self._node = node
        self._namespace = namespace
        self._nodes: dict[str, str] = {}
        """Of addresses that were looked up."""

    def getaddrinfo(self, host: Any, *more: Any, **options: Any) -> Any:
        """Names of pods from the cluster's DNS, all others as ever."""
        name = Name.asked(host, self._namespace) if isinstance(host, str) else None
        if name is None or host.replace(".", "").isdigit():
            return _lookup(host, *more, **options)
        if self._inside(self._node).cut_off:
            # The DNS is on another node.
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        record = cluster_dns.find(self._kubelets, name)
        if record is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self._nodes[record.address] = record.node
        return _lookup(record.address, *more, **options)

    def connect(self, own: socket.socket, address: Any) -> None:
        """As ever, unless nothing gets there."""
        node = self._nodes.get(address[0], self._node) if isinstance(address, tuple) else self._node
        if node != self._node and self._inside(node).cut_off:
            raise TimeoutError("timed out")
        _connect(own, address)

    def _inside(self, node: str) -> InNode:
        return rootless.read(self._kubelets).get(node, InNode())


def main(arguments: list[str]) -> None:
    kubelets, node = Path(os.environ[FOLDER_VARIABLE]), os.environ[NODE_VARIABLE]
    network = Network(kubelets, node, os.environ[NAMESPACE_VARIABLE])
    socket.getaddrinfo = network.getaddrinfo
    # A function, so that it is bound to the socket: an object would not be.
    setattr(socket.socket, "connect", lambda own, to: network.connect(own, to))  # noqa: B010
    program, *sys.argv = [arguments[0], *arguments]
    inside = rootless.read(kubelets).get(node, InNode())
    if Path(program).name == _TRAINING:
        if inside.kills_training:
            os.kill(os.getpid(), signal.SIGKILL)
        program = training.__file__
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
