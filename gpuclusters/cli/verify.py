"""`gpu-clusters verify`: try what a hostile tenant would try, and keep the evidence."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpuclusters.adapters.container_api import ContainerApi
from gpuclusters.adapters.errors import AdapterError
from gpuclusters.adapters.intruder import Target, attack
from gpuclusters.adapters.kubernetes_objects import KubernetesObjects
from gpuclusters.cli.access import api_url
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.project import Project
from gpuclusters.cli.stack_config import read_valid
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.inventory import read_inventory
from gpuclusters.config.lab import uses_lab
from gpuclusters.domain import evidence
from gpuclusters.domain.evidence import Evidence, Outcome
from lab import issuer

_TOKEN_SECONDS = 600
_SIMULATED = (
    "The machines are simulated and no data plane runs: that packets are dropped was not tried, only that "
    "the policies are in force."
)


def run(
    project: Project,
    stack: str,
    *,
    folder: Path,
    kubeconfig: Path | None,
    api: str | None,
    tokens: Sequence[str],
) -> int:
    """Attack the cluster of a stack and write the evidence; 0 if every attempt was refused, else 1.

    Raises:
        UsageError: an option is missing or wrong.
        RunError: the cluster cannot be asked.
    """
    config = read_valid(project, stack)
    section = config.section
    in_lab = uses_lab(config.section)
    try:
        target = (
            _lab_target(project, section, api)
            if in_lab
            else _target(section, _kubeconfig(kubeconfig), api, dict(map(_token, tokens)))
        )
        found = Evidence(
            cluster=section.name,
            stack=stack,
            at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            program=version("gpu-clusters"),
            api_server=target.objects.version(),
            findings=tuple(attack(target)),
            remarks=(_SIMULATED,) if in_lab else (),
        )
    except AdapterError as error:
        raise RunError(str(error)) from error
    if not found.findings:
        raise RunError(f"the cluster {section.name} has no tenants; there is nobody to try as")
    path = _keep(found, folder)
    _show(found, path)
    return 0 if found.isolated else 1


def check(path: Path) -> int:
    """Whether a file is unaltered evidence of isolation; 0 if it is, else 1.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    console = Console(highlight=False)
    faults = evidence.faults(document)
    for fault in faults:
        console.print(f"[red]fail[/red] {path} {fault}", soft_wrap=True)
    if not faults:
        console.print(
            f"[green]ok  [/green] {path} shows the isolation of {document['cluster']} on "
            f"{document['at']}: {document['counts']['refused']} attempts, all refused",
            soft_wrap=True,
        )
    return 1 if faults else 0


def _lab_target(project: Project, config: CaasConfig, api: str | None) -> Target:
    inventory = read_inventory(project.lab_folder)
    if inventory is None:
        raise UsageError("the lab does not run; start it with `make up`")
    folder = project.lab_folder / "issuer"
    tokens = {
        tenant.name: issuer.token(folder, tenant.name, _TOKEN_SECONDS) for tenant in config.tenants
    }
    text = inventory.kubeconfig.read_text(encoding="utf-8")
    return _target(config, text, api or api_url(text, config), tokens)


def _target(config: CaasConfig, kubeconfig: str, api: str | None, tokens: dict[str, str]) -> Target:
    return Target(
        objects=KubernetesObjects(kubeconfig),
        system=config.programs.namespace,
        node=config.nodes[0].name,
        api=ContainerApi(api) if api else None,
        tokens=tokens,
        tenant_claim=config.api.tenant_claim,
    )


def _kubeconfig(stated: Path | None) -> str:
    path = stated or Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the kubeconfig {path} cannot be read ({error.strerror}); name another with --kubeconfig"
        ) from error


def _token(option: str) -> tuple[str, str]:
    tenant, equals, file = option.partition("=")
    if not equals:
        raise UsageError(f"--token must be TENANT=FILE (got {option!r})")
    try:
        return tenant, Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"the token file {file} cannot be read: {error.strerror}") from error


def _keep(found: Evidence, folder: Path) -> Path:
    stamp = found.at.replace(":", "").replace("-", "")
    path = folder / f"isolation-{found.cluster}-{stamp}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found.document(), indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(found.markdown(), encoding="utf-8")
    except OSError as error:
        raise RunError(f"the evidence cannot be written to {folder}: {error.strerror}") from error
    return path


def _show(found: Evidence, path: Path) -> None:
    console = Console(highlight=False)
    table = Table(title=f"isolation of {found.cluster}", title_justify="left")
    for column in ("area", *(outcome.value for outcome in Outcome)):
        table.add_column(column)
    for area in dict.fromkeys(finding.area for finding in found.findings):
        outcomes = [f.outcome for f in found.findings if f.area == area]
        table.add_row(area, *(str(outcomes.count(outcome)) for outcome in Outcome))
    console.print(table)
    for finding in found.findings:
        if finding.outcome is not Outcome.REFUSED:
            console.print(
                f"[red]{finding.outcome}[/red] {finding.area}, {finding.tenant}: {finding.attempt} "
                f"({finding.said})",
                soft_wrap=True,
            )
    for remark in found.remarks:
        console.print(f"note: {remark}", soft_wrap=True)
    console.print(f"evidence: {path} and {path.with_suffix('.md').name}", soft_wrap=True)
