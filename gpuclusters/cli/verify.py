"""`gpu-clusters verify`: try what the cluster's type promises, and keep the evidence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuclusters.cli import files, reach
from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.lab_entry import lab_of
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.reach import container_api
from gpuclusters.cli.report import steps
from gpuclusters.config import rke2_plan, usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.core.converge import StderrReporter, SystemClock, time_of_day
from gpuclusters.core.errors import AdapterError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.kube.jobs import ClusterJobs
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.metrics import selection
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring
from gpuclusters.proof import checks as proof
from gpuclusters.proof import evidence, hosts, ladder_run, manifests
from gpuclusters.proof import run as proof_run
from gpuclusters.proof.checks import CLUSTER_RUNGS, HOST_RUNGS, Check, CheckLevel, Level
from gpuclusters.proof.evidence import (
    About,
    Evidence,
    IsolationEvidence,
    LadderEvidence,
    ProofEvidence,
    counted,
)
from gpuclusters.proof.model import LadderInputs, ProofInputs
from gpuclusters.tenancy.intrusion import Target, attack

SETTLE_SECONDS = 60
"""A cluster that is verified should be settled: nodes are not waited for as long as by `up`."""
Head = Callable[[str, Sequence[str]], About]
"""Makes the head of the evidence, from the API server's version and remarks."""
M = TypeVar("M", bound=BaseModel)


def rke2(
    project: Project, config: Rke2Config, about: Head, *, kubeconfig: Path | None, level: str | None
) -> ProofEvidence:
    """Climb, and look at the metrics where the stack has monitoring."""
    text = reach.kubeconfig(project, config, kubeconfig)
    wanted = rke2_inputs(config, text, rke2_level(config, level))
    cluster, texts = ClusterJobs(text), manifests.texts()
    found = proof_run.run(wanted, cluster, SystemClock(), StderrReporter(), texts)
    checks = list(found.checks)
    kind = rke2_plan.monitoring(config)
    if kind is not Monitoring.NONE:
        operator, namespace = wanted.operator_namespace, NAMES[kind].namespace
        checks += selection.look(cluster, operator_namespace=operator, namespace=namespace)
    images = {test.value: getattr(wanted.test(test), "image", None) for test in wanted.tests}
    return ProofEvidence(
        about=about(cluster.version(), found.remarks),
        level=wanted.level.value,
        checks=checks,
        nodes=found.observed,
        images={test: image for test, image in images.items() if image},
        programs=_digests(texts),
    )


def usernetes(
    project: Project,
    stack: str,
    config: UsernetesConfig,
    about: Head,
    *,
    kubeconfig: Path | None,
    level: str | None,
) -> LadderEvidence:
    """Climb, 1 to 4 on the hosts and 5 to 9 in the cluster; a rung that does not hold ends the climb."""
    highest = rung(config, level)
    text = reach.kubeconfig(project, config, kubeconfig)
    connections, credentials = reach.reach(project, stack, config)
    checks = list(on_hosts(config, connections, credentials, highest))
    cluster = ClusterJobs(text)
    wanted = usernetes_inputs(config, text, max(highest, CLUSTER_RUNGS[0]))
    texts = manifests.texts(manifests.LADDER_PROGRAMS)
    remarks: Sequence[str] = ()
    observed: Mapping[str, Mapping[str, str]] = {}
    if not proof.proven(checks):
        checks += proof.above(HOST_RUNGS[-1], highest, "the hosts' rungs do not hold")
    elif highest >= CLUSTER_RUNGS[0]:
        found = ladder_run.run(wanted, cluster, SystemClock(), StderrReporter(), texts)
        checks += found.checks
        remarks, observed = found.remarks, found.observed
    return LadderEvidence(
        about=about(cluster.version(), remarks),
        level=highest.level,
        checks=checks,
        nodes=observed,
        images={"training": wanted.training.image} if wanted.training else {},
        programs=_digests(texts),
    )


def _digests(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}


def on_hosts(
    config: UsernetesConfig,
    connections: Mapping[str, HostConnection],
    credentials: SshCredentials,
    highest: CheckLevel,
) -> Sequence[Check]:
    """Rungs 1 to 4 of all hosts at once, rung by rung."""
    found: list[Check] = []
    for name, said in reach.ask_all(
        connections, credentials, lambda _, host: hosts.ask(host, config.account, highest)
    ):
        if isinstance(said, AdapterError):
            found.append(proof.failed(CheckLevel.DRIVER, name, said.problem, said.remedy))
        else:
            found += hosts.judge(name, config.gpus.count, said, highest)
    return sorted(found, key=lambda check: check.level)


def rke2_inputs(config: Rke2Config, kubeconfig: str, level: Level) -> ProofInputs:
    """What is to be shown about the cluster of a configuration."""
    values = rke2_plan.proof_arguments(config, level)
    return _inputs(ProofInputs, config.name, {**values, "kubeconfig": kubeconfig})


def usernetes_inputs(config: UsernetesConfig, kubeconfig: str, highest: CheckLevel) -> LadderInputs:
    """What is to be shown about the cluster of a configuration."""
    values = usernetes_plan.arguments(config, highest)
    own = {"kubeconfig": kubeconfig, "settle_seconds": SETTLE_SECONDS}
    return _inputs(LadderInputs, config.name, {**values, **own})


def _inputs(model: type[M], name: str, values: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(values, by_name=True)
    except ValidationError as error:
        faults = (str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors())
        raise RunError(f"the GPUs of {name} cannot be proven: {'; '.join(faults)}") from error


def rke2_level(config: Rke2Config, stated: str | None) -> Level:
    """The highest level: as stated, `L2`, or the configuration's."""
    described = Level(config.proof.level)
    if stated is None:
        return described
    if stated.upper() not in list(Level):
        raise wrong_option(f"--level must be one of {', '.join(Level)} (got {stated!r})")
    level = Level(stated.upper())
    if level > described:
        raise UsageError(
            f"--level {level} needs tests that the configuration does not describe (its proof.level is "
            f"{described}); write proof.level: {level} with their images"
        )
    return level


def rung(config: UsernetesConfig, stated: str | None) -> CheckLevel:
    """The highest rung: as stated, `7` or `R7`, or the configuration's."""
    if stated is None:
        return CheckLevel(config.proof.rung)
    number = stated.upper().removeprefix("R")
    known = [str(one.value) for one in CheckLevel]
    if number not in known:
        raise wrong_option(f"--level must be a rung, {known[0]} to {known[-1]} (got {stated!r})")
    wanted = CheckLevel(int(number))
    if wanted is CheckLevel.TRAINING and config.proof.training is None:
        raise wrong_option(
            "--level 9 needs the training, which the configuration does not describe; write "
            "proof.training and proof.rung: 9"
        )
    return wanted


_TOKEN_SECONDS = 600
_SIMULATED = (
    "The machines are simulated and no data plane runs: that packets are dropped was not tried, only that "
    "the policies are in force."
)


def attacked(
    project: Project,
    config: CaasConfig,
    about: Head,
    *,
    kubeconfig: Path | None,
    api: str | None,
    tokens: Sequence[str],
) -> IsolationEvidence:
    stated = ContainerApi(api) if api else None
    if uses_lab(config):
        lab = lab_of(project)
        known = {tenant.name: lab.token(tenant.name, _TOKEN_SECONDS) for tenant in config.tenants}
        stated = stated or container_api(project, config)
    else:
        known = dict(map(_token, tokens))
    objects = KubernetesObjects(reach.kubeconfig(project, config, kubeconfig))
    target = Target(
        objects=objects,
        accounts=config.programs.accounts,
        node=config.nodes[0].name,
        api=stated,
        tokens=known,
        tenant_claim=config.api.tenant_claim,
    )
    head = about(objects.version(), remarks(project, config))
    found = IsolationEvidence(about=head, attempts=tuple(attack(target)))
    if not found.attempts:
        raise RunError(f"the cluster {config.name} has no tenants; there is nobody to try as")
    return found


def remarks(project: Project, config: CaasConfig) -> Sequence[str]:
    """What of the evidence is about stand-ins; nothing of a real cluster's."""
    if not uses_lab(config):
        return ()
    lab = lab_of(project)
    kind = lab.kind()
    return (_SIMULATED, f"{lab.kata(kind)}.") if kind else (_SIMULATED,)


def _token(option: str) -> tuple[str, str]:
    tenant, equals, file = option.partition("=")
    if not equals:
        raise wrong_option(f"--token must be TENANT=FILE (got {option!r})")
    return tenant, files.read(Path(file), "the token file ").strip()


_SUMS = ".sha256"


def keep(found: Evidence, folder: Path) -> Path:
    """Write the bundle; answers the JSON file."""
    stamp = found.about.at.replace(":", "").replace("-", "")
    path = folder / f"{found.kind}-{found.about.cluster}-{stamp}.json"
    texts = {
        path: json.dumps(found.document(), indent=2, ensure_ascii=False) + "\n",
        path.with_suffix(".md"): found.markdown(),
    }
    # As `sha256sum --check` reads it.
    sums = "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()}  {file.name}\n"
        for file, text in texts.items()
    )
    for file, text in {**texts, path.with_suffix(_SUMS): sums}.items():
        files.write(file, text, "the evidence ")
    return path


def show(found: Evidence, console: Console) -> None:
    """Entries by group and outcome, every one that did not come out as it must, all remarks."""
    table = Table(title=found.title, title_justify="left")
    for column in (found.keys[0], *(outcome.value for outcome in found.outcomes)):
        table.add_column(column)
    for group in dict.fromkeys(entry.group for entry in found.entries):
        outcomes = [entry.outcome for entry in found.entries if entry.group == group]
        table.add_row(group, *map(str, counted(outcomes, found.outcomes).values()))
    console.print(table)
    for entry in found.entries:
        if not found.is_good(entry):
            console.print(f"[red]{entry.outcome}[/red] {escape(str(entry))}", soft_wrap=True)
    for remark in found.about.remarks:
        console.print(f"note: {remark}", soft_wrap=True)


def check(path: Path, *, as_json: bool = False) -> int:
    """Whether a file is unaltered evidence of any kind; 0 if it is, else 1."""
    document = files.read_json(path)
    faults = [*evidence.faults(document), *_beside(path)]
    console = Console(highlight=False)
    if as_json:
        answer = {"file": str(path), "valid": not faults, "faults": faults}
        console.print_json(json.dumps(answer))
        return 1 if faults else 0
    lines = [f"[red]fail[/red] {escape(f'{path} {fault}')}" for fault in faults]
    if not faults:
        lines = [f"[green]ok  [/green] {escape(f'{path} shows {evidence.headline(document)}')}"]
    for line in lines:
        console.print(line, soft_wrap=True)
    return 1 if faults else 0


def _beside(path: Path) -> list[str]:
    """Files of the bundle that are there and are not what their digests say."""
    sums = path.with_suffix(_SUMS)
    if not sums.is_file():
        return []  # A JSON file may be kept alone.
    found = []
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        wanted, _, name = line.partition("  ")
        file = path.parent / Path(name).name
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
            found.append(f"is not the bundle's any more: {file.name} does not fit {sums.name}")
    return found


def run(
    project: Project,
    stack: str,
    *,
    folder: Path,
    kubeconfig: Path | None,
    api: str | None,
    tokens: Sequence[str],
    level: str | None = None,
    as_json: bool = False,
) -> int:
    """Attack a caas cluster, or prove the GPUs of another type's; 0 if it holds, else 1."""
    section = read_valid(project, stack).section
    _refuse_foreign(section, api=api, tokens=tokens, level=level)

    def about(api_server: str, remarks: Sequence[str]) -> About:
        return About(
            cluster=section.name,
            stack=stack,
            at=time_of_day(),
            program=version("gpu-clusters"),
            api_server=api_server,
            remarks=tuple(remarks),
        )

    found: Evidence
    with steps(Console(stderr=True, highlight=False), silent=as_json) as say:
        say(f"running the checks of {section.name}")
        if isinstance(section, Rke2Config):
            found = rke2(project, section, about, kubeconfig=kubeconfig, level=level)
        elif isinstance(section, UsernetesConfig):
            found = usernetes(project, stack, section, about, kubeconfig=kubeconfig, level=level)
        else:
            found = attacked(project, section, about, kubeconfig=kubeconfig, api=api, tokens=tokens)
    console = Console(highlight=False)
    path = keep(found, folder)
    if as_json:
        console.print_json(json.dumps(found.document()))
    else:
        show(found, console)
        beside = ", ".join(path.with_suffix(suffix).name for suffix in (".md", _SUMS))
        console.print(f"evidence: {path}, {beside}", soft_wrap=True)
        colour = "green" if found.holds else "red"
        console.print(f"[bold {colour}]{found.verdict}[/]", soft_wrap=True)
    return 0 if found.holds else 1


def _refuse_foreign(
    section: object, *, api: str | None, tokens: Sequence[str], level: str | None
) -> None:
    """An option of another cluster type would be ignored; that is said instead."""
    kinds = {"Rke2Config": "an rke2", "UsernetesConfig": "a usernetes"}
    kind = kinds.get(type(section).__name__)
    if kind and (api is not None or tokens):
        raise wrong_option(f"--api and --token are of caas clusters; this stack is {kind} one")
    if not kind and level is not None:
        raise wrong_option("--level is of rke2 and usernetes clusters; this stack is a caas one")
