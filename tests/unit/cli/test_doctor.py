"""`gpu-clusters doctor`: what it says, how it ends, and that it changes nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from rich.console import Console

from gpuclusters.cli import diagnosis, doctor, doctor_stack
from gpuclusters.cli import engine as engines
from gpuclusters.cli.diagnosis import Diagnosis, Level, failure, warning, well
from gpuclusters.cli.project import Project
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.stack import StackConfig, check_stack_file
from tests.fixtures.tables import beside
from tests.unit.cli.conftest import ROOT, Here, engine, made, stack_of

KEY = asyncssh.generate_private_key("ssh-ed25519")
PRIVATE = KEY.export_private_key().decode()
CASES = beside(__file__, "doctor.yaml")


def printed(found: list[Diagnosis]) -> list[str]:
    out = io.StringIO()
    diagnosis.show(Console(file=out, width=200, highlight=False), found, 1.25)
    return out.getvalue().splitlines()


def section(stack: str) -> ClusterConfig:
    config = check_stack_file(ROOT / f"Pulumi.{stack}.yaml")
    assert isinstance(config, StackConfig)
    return config.section


@pytest.mark.parametrize(
    ("levels", "code"), [("", 0), ("OK", 0), ("OK WARNING", 1), ("WARNING FAILURE", 2)]
)
def test_the_exit_code_says_how_bad_it_is(levels: str, code: int) -> None:
    made = {"OK": well("a", "x")}
    made |= {"WARNING": warning("a", "y", "x.y", "z"), "FAILURE": failure("b", "y", "x.y", "z")}
    assert diagnosis.exit_code([made[level] for level in levels.split()]) == code


def test_what_is_well_is_one_line_and_what_is_not_has_its_fix_beneath() -> None:
    found = [
        well("workstation", "Python 3.11"),
        well("workstation", "helm"),
        failure("hgx-01", "revision ff [b]", "preflight.off-the-bus", "switch it off and on"),
    ]
    assert printed(found) == [
        "ok   workstation Python 3.11; helm",
        "fail hgx-01      revision ff [b] [preflight.off-the-bus]",
        "                 do: switch it off and on",
        "",
        "1 failure (1.2 s; nothing was changed)",
    ]
    hosts = [well(f"hgx-{n:03}", "prepared: 8 GPUs") for n in range(1, 101)]
    lines = printed([*hosts[:50], failure("hgx-x", "off", "x.y", "on"), *hosts[50:]])
    assert lines[0] == "ok   100 machines hgx-001, hgx-002, hgx-003, … hgx-100: prepared: 8 GPUs"
    assert len(lines) == 5


def pulumi_that_says(folder: Path, plugins: str) -> engines.Engine:
    path = folder / "pulumi"
    path.write_text(
        f"#!/bin/sh\nif [ \"$1\" = version ]; then echo v3.300.0; else echo '{plugins}'; fi\n"
    )
    path.chmod(0o755)
    return engines.Engine(engines.Kind.PULUMI, (str(path),), "found")


@pytest.mark.parametrize(("plugins", "text"), CASES["plugins"].items())
def test_plugins_of_another_version_are_told(
    project: Project, tmp_path: Path, plugins: str, text: str
) -> None:
    engine = pulumi_that_says(tmp_path, plugins)
    found = list(doctor_stack.workstation(project, engine, in_lab=False))
    assert any(text in d.text for d in found)
    assert any(d.text == "Pulumi v3.300.0 (found)" for d in found)


def test_every_fault_of_the_configuration_is_a_finding(project: Project) -> None:
    path = project.folder / "Pulumi.dev.yaml"
    path.write_text(
        path.read_text().replace("[4, 2, 1, 1]", "[4, 3, 1]").replace("gpus: 8", "gpus: 0")
    )
    config, faults = doctor_stack.configuration(project, "dev")
    assert config is None
    assert len(faults) >= 2
    assert all(d.level is Level.FAILURE and d.fix for d in faults)
    assert any("caas.partition-layout" in d.text for d in faults)
    # So is a stack that does not exist, and a placeholder of an example.
    _, (found,) = doctor_stack.configuration(project, "prod")
    assert found.level is Level.FAILURE
    assert "known: dev, " in found.text
    _, example = doctor_stack.configuration(Project.find(ROOT), "hgx-h100")
    (failed,) = [one for one in example if one.level is Level.FAILURE]
    assert failed.id == "config.placeholder"
    assert "hosts.machines[0].host-key" in failed.text


def test_a_backend_is_looked_for_and_nothing_made_by_looking(project: Project) -> None:
    (found,) = doctor_stack.backend(stack_of(project))
    assert found.level is Level.OK, "a stack that was never run"
    (found,) = doctor_stack.backend(stack_of(project, PULUMI_BACKEND_URL="s3://nowhere"))
    assert found.level is Level.FAILURE
    assert "pulumi login" in found.fix
    assert not project.lab_folder.exists()


def test_a_state_with_a_lock_and_an_interrupted_run_is_told(project: Project) -> None:
    here, state = Here(project, "dev"), project.lab_folder / "state"
    here.put([], [here.resource("gpu:HostFile", "hgx-01-kubelet")])
    lock = here.lock(pid=42, hostname="desk", timestamp="2026-11-21T10:00:00Z")
    before = sorted(p for p in state.rglob("*") if p.is_file())
    found = list(doctor_stack.backend(here.session))
    texts = "\n".join(d.text for d in found)
    assert "locked by process 42 of ann@desk since 2026-11-21 10:00:00 +0000" in texts
    assert "pending (creating hgx-01-kubelet)" in texts
    assert diagnosis.exit_code(found) == 1
    assert sorted(p for p in state.rglob("*") if p.is_file()) == before
    assert lock.exists()


def test_the_passphrase_is_tried_and_no_secret_is_shown(project: Project) -> None:
    _, (found,) = doctor_stack.secrets(stack_of(project))
    assert found.text == "not tried: there is no state yet"
    engine(made(project), "config", "set", "--secret", "kubeconfig", "hunter2")
    opened, (found,) = doctor_stack.secrets(stack_of(project))
    assert opened.values == {"kubeconfig": "hunter2"}
    assert (opened.readable, found.level) == (True, Level.OK)
    wrong, (found,) = doctor_stack.secrets(stack_of(project, PULUMI_CONFIG_PASSPHRASE="no"))
    assert (wrong.readable, found.level) == (False, Level.FAILURE)
    assert "incorrect passphrase" in found.text
    assert "PULUMI_CONFIG_PASSPHRASE" in found.fix
    assert "'hunter2'" not in repr(doctor_stack.StackSecrets({"kubeconfig": "'hunter2'"}))


@pytest.mark.parametrize("row", CASES["secrets"], ids=lambda row: " ".join(row["given"]))
def test_every_secret_that_up_would_miss_or_could_not_use_is_a_failure(
    project: Project, row: dict[str, Any]
) -> None:
    stack, said = row["stack"], row["said"]
    secrets = {key: PRIVATE if text == "a key" else text for key, text in row["given"].items()}
    config = section(stack)
    given = doctor_stack.StackSecrets(secrets)
    found = list(doctor_stack.unfit(stack_of(project), config, given))
    assert len(found) == len(said)
    for one, (key, text) in zip(found, said.items(), strict=True):
        assert one.level is Level.FAILURE
        assert one.text.startswith(f"{key} {text}")
        assert f"config set --secret {key}" in one.fix
        assert not [secret for secret in secrets.values() if len(secret) > 1 and secret in one.text]
    sealed = doctor_stack.StackSecrets(readable=False)
    assert not list(doctor_stack.unfit(stack_of(project), config, sealed))


@pytest.mark.parametrize(("own", "level"), [(True, Level.OK), (False, Level.FAILURE)])
def test_the_key_for_machines_on_google_cloud_has_to_open_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool, level: Level
) -> None:
    file = tmp_path / "id"
    file.write_text(PRIVATE)
    monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(file))
    config = section("usernetes-v100")
    hosts = config.hosts
    if own:
        public = KEY.export_public_key().decode().strip()
        hosts = hosts.model_copy(update={"authorized_keys": (public,)})
    config = config.model_copy(update={"hosts": hosts})
    (found,) = doctor.of_stack(config, None, doctor_stack.StackSecrets())
    assert (found.area, found.level) == ("credentials", level)


def test_a_lab_that_was_not_made_is_a_warning_and_stays_unmade(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(engines.CHOICE, engines.Kind.EMBEDDED)
    assert doctor.run(project, "dev", as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert {f["area"] for f in document["findings"]} >= {"workstation", "configuration", "lab"}
    (lab,) = (f for f in document["findings"] if f["level"] == "warning" and f["area"] == "lab")
    assert lab["fix"] == "`make up`."
    assert not project.lab_folder.exists()
