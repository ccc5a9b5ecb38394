"""`gpu-clusters init`: from machines that answer to SSH to a stack that previews."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncssh
import pytest
import yaml

from gpuclusters.cli import init
from gpuclusters.cli.errors import UsageError
from gpuclusters.config.stack import ClusterType, StackConfig, check_stack_file
from tests.docs.pages import blocks, typed

ROOT = Path(__file__).resolve().parents[3]
DIGEST = "0123456789abcdef" * 4
ANSWERS = {
    "caas": {
        "bmc": "m-1=https://10.9.1.1 m-2=https://10.9.1.2",
        "firmware": "HGX_FW_GPU=96.00.A5.00.01",
        "service-vm-url": "https://images.example.net/fm.qcow2",
        "service-vm-sha256": DIGEST,
        "programs-image": f"registry.example.net/gpu-clusters@sha256:{DIGEST}",
        "issuer": "https://id.example.net",
        "host": "api.example.net",
        "tenants": "acme=4 globex=8",
    },
    "rke2": {"checksum": DIGEST},
    "usernetes": {"usernetes-sha256": DIGEST},
}
KEYS = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(2)]


@pytest.fixture(scope="module")
def machines() -> Iterator[str]:
    """Two servers of SSH, as the answer `machines`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def listen(key: asyncssh.SSHKey) -> asyncssh.SSHAcceptor:
        return await asyncssh.listen("127.0.0.1", 0, server_host_keys=[key])

    servers = [asyncio.run_coroutine_threadsafe(listen(key), loop).result(10) for key in KEYS]
    yield " ".join(f"m-{n}=127.0.0.1:{s.get_port()}" for n, s in enumerate(servers, 1))
    for server in servers:
        loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone of the project, and a home beside it."""
    folder = tmp_path / "project"
    (folder / "gpuclusters").mkdir(parents=True)
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    (tmp_path / "home").mkdir()
    return folder


def clean(project: Path) -> dict[str, str]:
    """The environment of somebody who has a clone and nothing else."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "GPU_CLUSTERS_"))}
    home = str(project.parent / "home")
    return env | {"HOME": home, "GPU_CLUSTERS_ENGINE": "embedded", "PYTHONPATH": str(ROOT)}


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return called(project, "init", *arguments, environment=clean(project))


def called(
    project: Path, *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuclusters.cli", *arguments],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def answered(folder: Path, kind: str, **answers: str) -> str:
    file = folder / "answers.yaml"
    file.write_text(yaml.safe_dump(ANSWERS[kind] | answers))
    return str(file)


@pytest.mark.parametrize("kind", list(ANSWERS))
def test_answers_become_a_stack_that_is_right(project: Path, machines: str, kind: str) -> None:
    secret = project.parent / "kubeconfig"
    secret.write_text("clusters: []\n")
    given = ["--secret", f"kubeconfig={secret}"] if kind == "caas" else []
    answers = answered(project, kind, machines=machines)
    done = run(project, kind, "--answers", answers, "--accept-host-keys", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    file = project / "Pulumi.prod.yaml"
    config = check_stack_file(file)
    assert isinstance(config, StackConfig)
    assert config.cluster_type == kind
    text = file.read_text()
    for key in KEYS:
        assert key.get_fingerprint() in done.stdout
        assert key.export_public_key().decode().strip() in text
    passphrase = project.parent / "home" / ".config" / "gpu-clusters" / "prod.passphrase"
    assert passphrase.stat().st_mode & 0o777 == 0o600
    after = done.stdout.split("next:\n")[1].splitlines()
    assert [line.split()[0] for line in after][:2] == ["export", "export"]
    assert after[-1].strip() == "gpu-clusters up --stack prod"
    left = {line.split()[4] for line in after if "config set --secret" in line}
    assert left == ({"controller-ssh-private-key", "bmc-password"} if kind == "caas" else set())
    sealed = yaml.safe_load(text)["config"].get("gpu-clusters:kubeconfig", {})
    assert set(sealed) == ({"secure"} if kind == "caas" else set())


def test_the_tutorial_shows_a_real_run(project: Path, machines: str) -> None:
    """From a clone to the preview of one's own stack file, as docs/rke2.md says it."""
    for path in ROOT.iterdir():
        if path.name not in {".git", ".lab", "Pulumi.yaml", "gpuclusters"}:
            (project / path.name).symlink_to(path)
    (project / "gpuclusters").rmdir()
    (project / "gpuclusters").symlink_to(ROOT / "gpuclusters")
    page = ROOT / "docs" / "rke2.md"
    (block,) = [one for one in blocks(page) if "gpu-clusters init" in one.text and "$ " in one.text]
    environment = clean(project)
    for command, expected in typed(block):
        program, *arguments = shlex.split(command)
        if program == "export":
            name, _, value = arguments[0].partition("=")
            environment[name] = value.replace("/home/ops", str(project.parent / "home"))
        elif program == "cat":
            answers = yaml.safe_load(block.text.split("answers.yaml\n", 1)[1].split("\n$", 1)[0])
            answers["machines"] = machines.replace("m-1", "rke2-01").replace("m-2", "a100-01")
            (project / arguments[0]).write_text(yaml.safe_dump(answers))
        else:
            assert program == "gpu-clusters"
            done = called(project, *arguments, environment=environment)
            printed = "\n".join(one.rstrip() for one in done.stdout.strip().splitlines())
            assert re.fullmatch(expected, printed, re.DOTALL), printed + done.stderr
            assert (done.stdout + done.stderr).count("rke2.single-server") <= 1


def test_a_managed_cluster_is_asked_for_no_machine_and_no_host_key(project: Path) -> None:
    file = project / "answers.yaml"
    given = {"project": "acme-study", "api-ranges": "198.51.100.7/32", "nodes": "3"}
    file.write_text(yaml.safe_dump(given))
    done = run(project, "gke", "--answers", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    config = check_stack_file(project / "Pulumi.prod.yaml")
    assert isinstance(config, StackConfig)
    assert config.cluster_type is ClusterType.GKE
    assert [(pool.name, pool.nodes) for pool in config.section.pools] == [("system", 1), ("gpu", 3)]
    assert config.section.zone == "us-central1-a"
    assert "config set --secret" not in done.stdout
    assert done.stdout.rstrip().endswith("gpu-clusters up --stack prod")


def test_what_a_managed_cluster_cannot_be_is_said_and_nothing_is_written(project: Path) -> None:
    file = project / "answers.yaml"
    given = {"project": "acme-study", "api-ranges": "0.0.0.0/0", "zone": "us-west4-b"}
    file.write_text(yaml.safe_dump(given))
    done = run(project, "gke", "--answers", str(file))
    assert done.returncode == 2
    assert "gke.zone: has us-west4-b without v100-sxm2-16gb" in done.stderr
    assert "gke.api-ranges[0]: lets a large part of the internet" in done.stderr
    assert not list(project.glob("Pulumi.prod.yaml"))


def test_what_is_wrong_is_said_at_once_and_nothing_is_written(project: Path, machines: str) -> None:
    answers = answered(project, "rke2", machines=machines, product="a100x", checksum="ab")
    done = run(project, "rke2", "--answers", answers, "--accept-host-keys")
    assert done.returncode == 2
    assert "rke2.artifacts.checksum" in done.stderr
    assert "rke2.pools[0].gpu.product" in done.stderr
    assert not list(project.glob("Pulumi.prod.yaml"))
    assert not list((project.parent / "home").iterdir())


def test_every_machine_that_does_not_answer_is_named(project: Path) -> None:
    answers = answered(project, "usernetes", machines="m-1=127.0.0.1:1 m-2=127.0.0.1:2")
    done = run(project, "usernetes", "--answers", answers, "--accept-host-keys")
    assert done.returncode == 1
    assert "m-1 (127.0.0.1:1)" in done.stderr
    assert "m-2 (127.0.0.1:2)" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_terminal_every_missing_answer_is_named_at_once() -> None:
    with pytest.raises(UsageError, match="ask for machines, checksum;"):
        init.ask(ClusterType.RKE2, {})


def test_a_stack_file_that_exists_is_never_written_over(project: Path) -> None:
    (project / "Pulumi.prod.yaml").write_text("mine\n")
    done = run(project, "rke2", "--answers", answered(project, "rke2"))
    assert done.returncode == 2
    assert "Pulumi.prod.yaml exists already" in done.stderr
    assert (project / "Pulumi.prod.yaml").read_text() == "mine\n"


def test_an_unknown_answer_is_refused(project: Path) -> None:
    done = run(project, "rke2", "--answers", answered(project, "rke2", machine="m-1=10.0.0.1"))
    assert done.returncode == 2
    assert "known: machines, user, servers" in done.stderr


@pytest.mark.parametrize("kind", list(ClusterType))
def test_an_answer_of_the_wrong_form_is_an_error(kind: ClusterType) -> None:
    with pytest.raises(UsageError, match="'m-1' is not of the form NAME=VALUE"):
        init.document(kind, "prod", {"machines": "m-1"}, {})
