"""`gpu-clusters doctor`: what it says, how it ends, and that it changes nothing."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import asyncssh
import pytest
from rich.console import Console

from gpuclusters.cli import diagnosis, doctor, doctor_stack
from gpuclusters.cli import engine as engines
from gpuclusters.cli.diagnosis import Diagnosis, Level, failure, warning, well
from gpuclusters.cli.project import Project, Stack
from gpuclusters.config.stack import StackConfig, check_stack_file

ROOT = Path(__file__).resolve().parents[3]
EMBEDDED = engines.Engine(
    engines.Kind.EMBEDDED, (sys.executable, "-m", "engine"), "the test asks for it"
)

KEY = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()


def printed(found: list[Diagnosis]) -> str:
    out = io.StringIO()
    diagnosis.show(Console(file=out, width=200, highlight=False), found, 1.25)
    return out.getvalue()


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], 0),
        ([well("a", "x")], 0),
        ([well("a", "x"), warning("a", "y", "x.y", "z")], 1),
        ([warning("a", "y", "x.y", "z"), failure("b", "y", "x.y", "z")], 2),
    ],
)
def test_the_exit_code_says_how_bad_it_is(found: list[Diagnosis], code: int) -> None:
    assert diagnosis.exit_code(found) == code


def test_what_is_well_is_one_line_and_what_is_not_has_its_fix_beneath() -> None:
    text = printed(
        [
            well("workstation", "Python 3.11"),
            well("workstation", "helm"),
            failure("hgx-01", "revision ff [b]", "preflight.off-the-bus", "switch it off and on"),
        ]
    )
    assert text.splitlines() == [
        "ok   workstation Python 3.11; helm",
        "fail hgx-01      revision ff [b] [preflight.off-the-bus]",
        "                 do: switch it off and on",
        "",
        "1 failure (1.2 s; nothing was changed)",
    ]


def test_a_hundred_machines_that_are_well_are_one_line() -> None:
    hosts = [well(f"hgx-{n:03}", "prepared: 8 GPUs") for n in range(1, 101)]
    lines = printed([*hosts[:50], failure("hgx-x", "off", "x.y", "on"), *hosts[50:]]).splitlines()
    assert lines[0] == "ok   100 machines hgx-001, hgx-002, hgx-003, … hgx-100: prepared: 8 GPUs"
    assert len(lines) == 5


def test_json_says_the_same_to_programs() -> None:
    document = json.loads(diagnosis.as_json("dev", [warning("lab", "é", "x.y", "do")]))
    assert document == {
        "stack": "dev",
        "verdict": "warning",
        "findings": [
            {"area": "lab", "level": "warning", "text": "é", "fix": "do", "id": "x.y"},
        ],
    }


def pulumi_that_says(folder: Path, plugins: str) -> engines.Engine:
    path = folder / "pulumi"
    path.write_text(
        f"#!/bin/sh\nif [ \"$1\" = version ]; then echo v3.300.0; else echo '{plugins}'; fi\n"
    )
    path.chmod(0o755)
    return engines.Engine(engines.Kind.PULUMI, (str(path),), "found")


@pytest.mark.parametrize(
    ("plugins", "text"),
    [
        ("[]", "plugins to come: kubernetes, command"),
        (
            '[{"name": "kubernetes", "version": "1.2.3"}]',
            "plugin kubernetes 1.2.3, and the program",
        ),
        ("nonsense", "printed no JSON"),
    ],
)
def test_plugins_of_another_version_are_told(
    project: Project, tmp_path: Path, plugins: str, text: str
) -> None:
    found = list(
        doctor_stack.workstation(project, pulumi_that_says(tmp_path, plugins), in_lab=False)
    )
    assert any(text in d.text for d in found)
    assert any(d.text == "Pulumi v3.300.0 (found)" for d in found)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project of its own with the dev stack's files."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        shutil.copy(ROOT / name, folder / name)
    return Project(folder, tmp_path / "lab")


def stack_of(project: Project, **env: str) -> Stack:
    variables = {
        **project.lab_environment(),
        "PYTHONPATH": str(ROOT),
        **env,
    }
    return Stack(project, "dev", EMBEDDED, variables)


def test_every_fault_of_the_configuration_is_a_finding(project: Project) -> None:
    path = project.folder / "Pulumi.dev.yaml"
    path.write_text(
        path.read_text().replace("[4, 2, 1, 1]", "[4, 3, 1]").replace("gpus: 8", "gpus: 0")
    )
    config, found = doctor_stack.configuration(project, "dev")
    assert config is None
    assert len(found) >= 2
    assert all(d.level is Level.FAILURE and d.fix for d in found)
    assert any("caas.partition-layout" in d.text for d in found)


def test_a_stack_that_does_not_exist_is_said_with_those_that_do(project: Project) -> None:
    _, (found,) = doctor_stack.configuration(project, "prod")
    assert found.level is Level.FAILURE
    assert "known: dev" in found.text


def test_a_stack_that_was_never_run_is_well(project: Project) -> None:
    (found,) = doctor_stack.backend(stack_of(project))
    assert found.level is Level.OK
    assert not project.lab_folder.exists(), "nothing was made by looking"


def engine(stack: Stack, *args: str) -> str:
    return subprocess.run(
        [*EMBEDDED.command, *args],
        cwd=stack.project.folder,
        env=dict(stack.env),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def made(project: Project) -> Stack:
    """A stack that is in its backend."""
    (project.lab_folder / "state").mkdir(parents=True)
    stack = stack_of(project)
    engine(stack, "stack", "init", "dev", "--non-interactive")
    return stack


def test_a_state_with_a_lock_and_an_interrupted_run_is_told(project: Project) -> None:
    stack, state = made(project), project.lab_folder / "state"
    document = json.loads(engine(stack, "stack", "export", "--stack", "dev"))
    urn = "urn:pulumi:dev::gpu-clusters::gpu:HostFile::hgx-01-kubelet"
    document["deployment"]["pending_operations"] = [
        {"resource": {"urn": urn, "custom": True, "type": "gpu:HostFile"}, "type": "creating"}
    ]
    checkpoint = next((state / ".pulumi" / "stacks").rglob("dev.json"))
    kept = json.loads(checkpoint.read_text())
    kept["checkpoint"]["latest"] = document["deployment"]
    checkpoint.write_text(json.dumps(kept))
    lock = state / ".pulumi" / "locks" / "organization" / "gpu-clusters" / "dev" / "1.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    holder = {"pid": 42, "username": "ann", "hostname": "desk", "timestamp": "2026-11-21T10:00:00Z"}
    lock.write_text(json.dumps(holder))
    before = sorted(p for p in state.rglob("*") if p.is_file())
    found = list(doctor_stack.backend(stack))
    texts = "\n".join(d.text for d in found)
    assert "locked by process 42 of ann@desk since 2026-11-21 10:00:00 +0000" in texts
    assert "pending (creating hgx-01-kubelet)" in texts
    assert diagnosis.exit_code(found) == 1
    assert sorted(p for p in state.rglob("*") if p.is_file()) == before
    assert lock.exists()


def test_a_backend_that_cannot_be_had_is_a_failure(project: Project) -> None:
    (found,) = doctor_stack.backend(stack_of(project, PULUMI_BACKEND_URL="s3://nowhere"))
    assert found.level is Level.FAILURE
    assert "pulumi login" in found.fix


def test_the_passphrase_is_tried_and_no_secret_is_shown(project: Project) -> None:
    _, (found,) = doctor_stack.secrets(stack_of(project))
    assert found.text == "not tried: there is no state yet"
    engine(made(project), "config", "set", "--secret", "kubeconfig", "hunter2", "--stack", "dev")
    opened, (found,) = doctor_stack.secrets(stack_of(project))
    assert opened.values == {"kubeconfig": "hunter2"}
    assert (opened.readable, found.level) == (True, Level.OK)
    wrong, (found,) = doctor_stack.secrets(stack_of(project, PULUMI_CONFIG_PASSPHRASE="no"))
    assert (wrong.readable, found.level) == (False, Level.FAILURE)
    assert "incorrect passphrase" in found.text
    assert "PULUMI_CONFIG_PASSPHRASE" in found.fix
    assert "'hunter2'" not in repr(doctor_stack.StackSecrets({"kubeconfig": "'hunter2'"}))


def test_every_secret_that_up_would_miss_is_a_failure(project: Project) -> None:
    file = ROOT / "Pulumi.hgx-h100.yaml"
    config = check_stack_file(file)
    assert isinstance(config, StackConfig)
    secrets = doctor_stack.StackSecrets({"bmc-password": "x"})
    found = list(doctor_stack.unfit(stack_of(project), config.section, secrets))
    assert [d.text.split()[0] for d in found] == ["controller-ssh-private-key", "kubeconfig"]
    assert all(d.level is Level.FAILURE and "config set --secret" in d.fix for d in found)
    sealed = doctor_stack.StackSecrets(readable=False)
    assert not list(doctor_stack.unfit(stack_of(project), config.section, sealed))


@pytest.mark.parametrize(
    ("stack", "key", "text", "said"),
    [
        ("usernetes-v100", "ssh-private-key", KEY, "fits none of hosts.authorized-keys"),
        ("hgx-h100", "kubeconfig", "nonsense", "is not the text of a kubeconfig"),
        ("hgx-h100", "controller-ssh-private-key", "ssh-ed25519 AAAA", "is not the text of"),
    ],
)
def test_a_secret_that_is_of_no_use_is_a_failure(
    project: Project, stack: str, key: str, text: str, said: str
) -> None:
    config = check_stack_file(ROOT / f"Pulumi.{stack}.yaml")
    assert isinstance(config, StackConfig)
    secrets = doctor_stack.StackSecrets({key: text})
    found = doctor_stack.unfit(stack_of(project), config.section, secrets)
    (wrong,) = [one for one in found if one.id == "config.wrong-secret"]
    assert wrong.level is Level.FAILURE
    assert wrong.text.startswith(f"{key} {said}")
    assert f"config set --secret {key}" in wrong.fix
    assert text not in wrong.text


def test_placeholders_of_an_example_are_a_failure_that_names_some() -> None:
    _, found = doctor_stack.configuration(Project.find(ROOT), "hgx-h100")
    (failed,) = [one for one in found if one.level is Level.FAILURE]
    assert failed.id == "config.placeholder"
    assert "hosts.machines[0].host-key" in failed.text


@pytest.mark.parametrize(("own", "level"), [(True, Level.OK), (False, Level.FAILURE)])
def test_the_key_for_machines_on_google_cloud_has_to_open_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool, level: Level
) -> None:
    config = check_stack_file(ROOT / "Pulumi.usernetes-v100.yaml")
    assert isinstance(config, StackConfig)
    file = tmp_path / "id"
    file.write_text(KEY)
    monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(file))
    hosts = config.section.hosts
    public = asyncssh.import_private_key(KEY).export_public_key().decode().strip()
    if own:
        hosts = hosts.model_copy(update={"authorized_keys": (public,)})
    section = config.section.model_copy(update={"hosts": hosts})
    (found,) = doctor.of_stack(section, None, doctor_stack.StackSecrets())
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
