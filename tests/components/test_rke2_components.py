"""The RKE2 cluster as a component."""

from typing import Any

from components.host_connection import HostConnection
from components.rke2.cluster import Rke2Cluster, Rke2Host
from gpuclusters.rke2.host_config import Settings
from tests.components.recorder import Recorder, record

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def host(name: str) -> Rke2Host:
    connection = HostConnection(host=name, address=name, port=22, user="ops", host_key=KEY)
    return Rke2Host(connection=connection)


def cluster(**changes: Any) -> Recorder:
    def declare() -> None:
        args: dict[str, Any] = {
            "version": "v1.35.7+rke2r1",
            "artifacts": {"source": "download", "location": "https://x", "checksum": "a" * 64},
            "settings": Settings(registration_address="10.0.0.100"),
            "servers": [host("cp-1"), host("cp-2"), host("cp-3")],
            "agents": [host("a-1"), host("a-2"), host("a-3")],
            "agents_at_once": 2,
            **changes,
        }
        Rke2Cluster("c", **args)

    return record(declare)


def test_tokens_of_ones_own_are_used_and_none_are_made() -> None:
    recorder = cluster(
        server_token="server-token-of-ones-own", agent_token="agent-token-of-ones-own"
    )
    assert not recorder.of(":Rke2Tokens")
    nodes = recorder.of(":Rke2Node")
    assert nodes["cp-2-rke2"]["token"] == "server-token-of-ones-own"
    assert nodes["cp-2-rke2"]["agent_token"] == "agent-token-of-ones-own"
    assert nodes["a-1-rke2"]["token"] == "agent-token-of-ones-own"
    assert "agent_token" not in nodes["a-1-rke2"]
