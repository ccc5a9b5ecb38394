"""`gpu-clusters verify`: try what the cluster's type promises, and keep the evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuclusters.cli import compare, files, reach
from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.lab_entry import lab_of
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.reach import container_api
from gpuclusters.cli.report import steps
from gpuclusters.config import gke_plan, plan, rke2_plan, usernetes_plan
from gpuclusters.config.caas import CaasConfig, TlsExposure
from gpuclusters.config.cluster import ClusterConfig, uses_lab
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.stack import ClusterType
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.core.converge import Clock, Reporter, time_of_day
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Refused
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.kube.objects import KubernetesObjects, PatientObjects
from gpuclusters.metrics import selection
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring
from gpuclusters.proof import checks as proof
from gpuclusters.proof import containers, evidence, hosts, ladder_run, manifests
from gpuclusters.proof import run as proof_run
from gpuclusters.proof.checks import (
    CLUSTER_RUNGS,
    HOST_RUNGS,
    Check,
    CheckLevel,
    Level,
    Outcome,
    ProofResult,
)
from gpuclusters.proof.evidence import ISOLATION, LADDER, PROOF, About, Evidence
from gpuclusters.proof.model import LadderInputs, ProofInputs
from gpuclusters.tenancy.intrusion import Target, attack
from gpuclusters.tenancy.model import TENANCY

SETTLE_SECONDS = 60
"""A cluster that is verified should be settled: nodes are not waited for as long as by `up`."""
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be verified of which stack: the options of the command; None where one is not given."""

    project: Project
    stack: str
    kubeconfig: Path | None = None
    api: str | None = None
    tokens: Sequence[str] = ()
    level: str | None = None

    def about(self, config: ClusterConfig, api_server: str, remarks: Sequence[str]) -> About:
        """The head of the evidence."""
        return About(
            cluster=config.name,
            stack=self.stack,
            at=time_of_day(),
            program=version("gpu-clusters"),
            api_server=api_server,
            remarks=tuple(remarks),
            setting=compare.setting(config),
        )


def rke2(request: Request, config: Rke2Config) -> Evidence:
    """Climb, and look at the metrics where the stack has monitoring."""
    text = reach.kubeconfig(request.project, config, request.kubeconfig)
    wanted = rke2_inputs(config, text, rke2_level(config, request.level))
    cluster, texts = PatientObjects(text), manifests.texts()
    found = proof_run.run(wanted, cluster, Clock(), Reporter(), texts)
    checks = list(found.checks)
    kind = rke2_plan.monitoring(config)
    if kind is not Monitoring.NONE:
        operator, namespace = wanted.operator_namespace, NAMES[kind].namespace
        checks += selection.look(cluster, operator_namespace=operator, namespace=namespace)
    return Evidence(
        kind=PROOF,
        about=request.about(config, cluster.version(), found.remarks),
        level=wanted.level.value,
        checks=checks,
        nodes=found.observed,
        images={test.name: test.image for test in wanted.tests if test.image},
        programs=_digests(texts),
    )


def usernetes(request: Request, config: UsernetesConfig) -> Evidence:
    """Climb, 1 to 4 on the hosts and 5 to 9 in the cluster; a rung that does not hold ends the climb."""
    highest = rung(config, request.level)
    text = reach.kubeconfig(request.project, config, request.kubeconfig)
    names = usernetes_plan.machine_names(config)
    connections, credentials = reach.reach(request.project, request.stack, config, names)
    checks = on_hosts(config, connections, credentials, highest)
    if not proof.proven(checks):
        why = "the hosts' rungs do not hold"
        checks = [*checks, *proof.USERNETES.above(HOST_RUNGS[-1], highest, why)]
    arguments = usernetes_plan.arguments(config, max(highest, CLUSTER_RUNGS[0]))
    return _climbed(request, config, highest, ladder_inputs(config, text, arguments), checks)


def gke(request: Request, config: GkeConfig) -> Evidence:
    """Climb the cluster's rungs, 5 to 9."""
    highest = rung(config, request.level)
    if highest < CLUSTER_RUNGS[0]:
        raise wrong_option("--level of a gke cluster is 5 to 9: its hosts are Google's")
    text = reach.made_kubeconfig(request.project, request.stack, request.kubeconfig)
    wanted = ladder_inputs(config, text, gke_plan.arguments(config, highest))
    return _climbed(request, config, highest, wanted)


def _climbed(
    request: Request,
    config: UsernetesConfig | GkeConfig,
    highest: CheckLevel,
    wanted: LadderInputs,
    checks: Sequence[Check] = (),
) -> Evidence:
    """The rungs of the cluster, if those below it were climbed and it is to be climbed at all."""
    cluster, texts = PatientObjects(wanted.kubeconfig), manifests.texts(manifests.LADDER_PROGRAMS)
    found = ProofResult((), (), {})
    if highest >= CLUSTER_RUNGS[0] and not proof.faults(checks):
        found = ladder_run.run(wanted, cluster, Clock(), Reporter(), texts)
    return Evidence(
        kind=LADDER,
        about=request.about(config, cluster.version(), found.remarks),
        level=highest.level,
        ladder=wanted.ladder,
        checks=[*checks, *found.checks],
        nodes=found.observed,
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
            wrong = proof.USERNETES.failed(CheckLevel.DRIVER, name, said.problem, said.remedy)
            found.append(wrong)
        else:
            found += hosts.judge(name, config.gpus.count, said, highest)
    return sorted(found, key=lambda check: check.level)


def rke2_inputs(config: Rke2Config, kubeconfig: str, level: Level) -> ProofInputs:
    """What is to be shown about the cluster of a configuration."""
    values = rke2_plan.proof_arguments(config, level)
    return _inputs(ProofInputs, config.name, {**values, "kubeconfig": kubeconfig})


def ladder_inputs(
    config: UsernetesConfig | GkeConfig, kubeconfig: str, arguments: Mapping[str, Any]
) -> LadderInputs:
    """What is to be shown about the cluster of a configuration."""
    own = {"kubeconfig": kubeconfig, "settle_seconds": SETTLE_SECONDS}
    return _inputs(LadderInputs, config.name, {**arguments, **own})


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


def rung(config: UsernetesConfig | GkeConfig, stated: str | None) -> CheckLevel:
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


FOLDER = Path("evidence")
"""Where it is kept unless another folder is named."""
_TOKEN_SECONDS = 3600
_SIMULATED = (
    "The machines are simulated and no data plane runs: that packets are dropped was not tried, only that "
    "the policies are in force."
)


def isolation(request: Request, config: CaasConfig) -> Evidence:
    """What a hostile tenant would try."""
    objects = KubernetesObjects(reach.kubeconfig(request.project, config, request.kubeconfig))
    tenants = [tenancy["metadata"]["name"] for tenancy in objects.list(TENANCY)]
    target = Target(
        objects=objects,
        accounts=config.programs.accounts,
        node=config.nodes[0].name,
        api=_api(request, config),
        tokens=_tokens(request, config, tenants),
        tenant_claim=config.api.tenant_claim,
    )
    head = request.about(config, objects.version(), remarks(request.project, config))
    found = Evidence(kind=ISOLATION, about=head, checks=tuple(attack(target)))
    if not found.checks:
        raise RunError(f"the cluster {config.name} has no tenants; there is nobody to try as")
    return found


def container_proof(request: Request, config: CaasConfig) -> Evidence:
    """The GPUs in containers, as a tenant gets them."""
    wanted = config.proof
    if wanted is None:
        instead = "write proof: {tenant: …, image: …}"
        raise UsageError(f"the configuration describes no proof of the GPUs; {instead}")
    known = dict(_tokens(request, config, [wanted.tenant]))
    if wanted.tenant not in known and wanted.token_file is not None:
        known[wanted.tenant] = files.read(Path(wanted.token_file), "the token file ").strip()
    served = _api(request, config)
    if served is None:
        raise RunError("no copy of the API is ready, or its address is not known; give it by --api")
    if wanted.tenant not in known:
        file = f"give it by --token {wanted.tenant}=FILE, or write proof.token-file"
        raise RunError(f"no token of {wanted.tenant} is known; {file}")
    texts = manifests.texts((containers.PROGRAM,))
    run = containers.ContainerRun(
        customer=containers.Customer(api=served, tenant=wanted.tenant, token=known[wanted.tenant]),
        wanted=wanted,
        program=texts[containers.PROGRAM],
        product=plan.gpu_product(config),
        simulated=uses_lab(config),
        clock=Clock(),
        reporter=Reporter(),
    )
    text = reach.kubeconfig(request.project, config, request.kubeconfig)
    api_server = KubernetesObjects(text).version()
    try:
        found = run.run()
    except Refused as error:
        raise RunError(str(error)) from error
    return Evidence(
        kind=PROOF,
        about=request.about(config, api_server, found.remarks),
        level=Level.L1.value,
        checks=found.checks,
        images={"matmul": wanted.image},
        programs=_digests(texts),
    )


def _api(request: Request, config: CaasConfig) -> ContainerApi | None:
    """The public API: where it is said to be, in the lab where it is, else where tenants reach it."""
    if request.api is not None:
        return ContainerApi(request.api)
    if uses_lab(config):
        return container_api(request.project, config)
    exposure = config.api.exposure
    return ContainerApi(f"https://{exposure.host}") if isinstance(exposure, TlsExposure) else None


def _tokens(request: Request, config: CaasConfig, tenants: Sequence[str]) -> Mapping[str, str]:
    """By tenant; the lab makes one for each of these."""
    if not uses_lab(config):
        return dict(map(_token, request.tokens))
    lab = lab_of(request.project)
    return {tenant: lab.token(tenant, _TOKEN_SECONDS) for tenant in tenants}


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
    path = folder / f"{found.kind.name}-{found.about.cluster}-{stamp}.json"
    texts = {
        path: json.dumps(found.document(), indent=2, ensure_ascii=False) + "\n",
        path.with_suffix(".md"): found.markdown(),
    }
    # As `sha256sum --check` reads it.
    sums = "".join(
        f"{sha256(text.encode()).hexdigest()}  {file.name}\n" for file, text in texts.items()
    )
    for file, text in {**texts, path.with_suffix(_SUMS): sums}.items():
        files.write(file, text, "the evidence ")
    return path


def show(found: Evidence, console: Console) -> None:
    """Checks by level and outcome, every one that did not come out as it must, all remarks."""
    table = Table(title=found.title, title_justify="left")
    outcomes = found.kind.outcomes
    for column in (found.kind.keys[0], *outcomes.values()):
        table.add_column(column)
    for group in dict.fromkeys(check.level for check in found.checks):
        table.add_row(group, *map(str, found.counts(group).values()))
    console.print(table)
    for check in found.checks:
        if check.outcome is not Outcome.PASSED:
            text = escape(f"{check.level} {check.subject}: {check.what} ({check.said})")
            console.print(f"[red]{outcomes[check.outcome]}[/red] {text}", soft_wrap=True)
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
        if file.is_file() and sha256(file.read_bytes()).hexdigest() != wanted:
            found.append(f"is not the bundle's any more: {file.name} does not fit {sums.name}")
    return found


def run(request: Request, *, folder: Path = FOLDER, as_json: bool = False) -> int:
    """Attack a caas cluster and prove its GPUs, or those of another type's; 0 if it holds, else 1."""
    stack = read_valid(request.project, request.stack)
    kind, section = stack.cluster_type, stack.section
    foreign = request.api is not None or request.tokens
    if foreign and not isinstance(section, CaasConfig):
        # It would be ignored.
        what = f"{'an' if kind is ClusterType.RKE2 else 'a'} {kind} one"
        raise wrong_option(f"--api and --token are of caas clusters; this stack is {what}")
    looks: Sequence[Callable[[Request, Any], Evidence]]
    if isinstance(section, CaasConfig):
        ways = {CaasLevel.ISOLATION: isolation, CaasLevel.PROOF: container_proof}
        looks = [ways[one] for one in caas_levels(section, request.level)]
    else:
        looks = [_OF_TYPE[kind]]
    holds = []
    for look in looks:
        with steps(Console(stderr=True, highlight=False), silent=as_json) as say:
            say(f"running the checks of {section.name}")
            found = look(request, section)
        _conclude(found, folder, as_json=as_json)
        holds.append(found.holds)
    return 0 if all(holds) else 1


_OF_TYPE: Mapping[ClusterType, Callable[[Request, Any], Evidence]] = {
    ClusterType.RKE2: rke2,
    ClusterType.USERNETES: usernetes,
    ClusterType.GKE: gke,
}


def _conclude(found: Evidence, folder: Path, *, as_json: bool) -> None:
    """Keep the evidence and show it."""
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


class CaasLevel(StrEnum):
    """What of a caas cluster is looked at."""

    ISOLATION = "isolation"
    PROOF = "proof"


def caas_levels(config: CaasConfig, stated: str | None) -> Sequence[CaasLevel]:
    """As stated, or all that the configuration describes."""
    if stated is None:
        return [level for level in CaasLevel if level is not CaasLevel.PROOF or config.proof]
    if stated not in list(CaasLevel):
        raise wrong_option(f"--level must be one of {', '.join(CaasLevel)} (got {stated!r})")
    return [CaasLevel(stated)]
