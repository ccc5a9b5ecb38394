"""`doctor`: every machine at once, over one connection each, with the checks of the preflight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpuclusters.cli.diagnosis import Diagnosis, failure, of_findings, unreachable, well
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.inventory import ResolvedHost
from gpuclusters.config.plan import expects
from gpuclusters.core.errors import AdapterError
from gpuclusters.host.connect import SshCredentials, find_credentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.preflight.decide import judge, stage_of
from gpuclusters.preflight.host import read_facts
from gpuclusters.preflight.model import Expects, HostFacts, Stage

CREDENTIALS = "credentials"
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine to look at."""

    name: str
    connection: HostConnection
    expects: Expects
    fabric_manager: str | None


def machines(config: CaasConfig, hosts: Sequence[ResolvedHost]) -> list[Machine]:
    """The machines of the nodes."""
    by_name = {host.name: host for host in hosts}
    return [
        Machine(
            node.name,
            HostConnection(
                host=node.name,
                address=by_name[node.name].address,
                port=by_name[node.name].port,
                user=by_name[node.name].user,
                host_key=by_name[node.name].host_key,
            ),
            expects(config, node),
            str(config.service_vm.bind_address),
        )
        for node in config.nodes
        if node.name in by_name
    ]


def examine(
    found: Sequence[Machine], private_key: str | None, source: str = ""
) -> Iterator[Diagnosis]:
    """All machines in parallel: one that does not answer costs its time-out once.

    Args:
        found: the machines.
        private_key: the stack's; None: the key file or the agent.
        source: where the key comes from, if not from there.
    """
    try:
        credentials = find_credentials(private_key)
        credentials.keys()
    except AdapterError as error:
        yield unreachable(CREDENTIALS, error)
        return
    yield well(CREDENTIALS, f"SSH key from {source or credentials.source}")
    with ThreadPoolExecutor(max(1, min(len(found), _AT_ONCE))) as pool:
        looks = list(pool.map(lambda machine: _look(machine, credentials), found))
    seen: dict[str, str] = {}
    for machine, (facts, diagnoses) in zip(found, looks, strict=True):
        yield from diagnoses
        if facts is None or not facts.machine_id:
            continue
        other = seen.setdefault(facts.machine_id, machine.name)
        if other != machine.name:
            yield failure(
                machine.name,
                f"is the same machine as {other} (machine-id {facts.machine_id})",
                "correct the address of one; if both were cloned from one image, "
                "`rm /etc/machine-id; systemd-machine-id-setup` on one",
                "doctor.same-machine",
            )


def _look(
    machine: Machine, credentials: SshCredentials
) -> tuple[HostFacts | None, list[Diagnosis]]:
    host = SshHost(machine.connection, credentials, connect_attempts=1)
    try:
        wanted = machine.expects.functions
        facts = read_facts(host, wanted, fabric_manager=machine.fabric_manager)
    except AdapterError as error:
        return None, [failure(machine.name, error.problem, error.remedy, error.error_id)]
    stage = stage_of(facts, machine.expects)
    verdict = judge(facts, machine.expects, stage)
    found = list(of_findings(machine.name, verdict.findings))
    if not verdict.failures:
        found.insert(0, well(machine.name, _summary(facts, machine.expects, stage)))
    return facts, found


def _summary(facts: HostFacts, wanted: Expects, stage: Stage) -> str:
    state = "prepared" if stage is Stage.PREPARED else "bare, can be prepared"
    there = sum(address in facts.functions for address in wanted.gpus.values())
    return f"{state}: {there} GPUs, {facts.memory_kib // 2**20} GiB, Linux {facts.kernel}"
