"""`gpu-clusters init`: from machines that answer to SSH to a stack that previews."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml

from gpuclusters.cli import init as interview
from gpuclusters.cli.errors import UsageError
from gpuclusters.config.stack import ClusterType, StackConfig, check_stack_file
from tests.docs.pages import blocks, typed
from tests.fixtures.tables import beside
from tests.unit.cli.conftest import ROOT, Cli, looping

CASES = beside(__file__, "answers.yaml")
ANSWERS = CASES["answers"]
KEYS = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(2)]


@pytest.fixture(scope="module")
def machines() -> Iterator[str]:
    """Two servers of SSH, as the answer `machines`."""
    with looping() as run:
        servers = [run(asyncssh.listen("127.0.0.1", 0, server_host_keys=[key])) for key in KEYS]
        yield " ".join(f"m-{n}=127.0.0.1:{s.get_port()}" for n, s in enumerate(servers, 1))
        for server in servers:
            server.close()


Init = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone of the project, and a home beside it."""
    folder = tmp_path / "project"
    (folder / "gpuclusters").mkdir(parents=True)
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    (tmp_path / "home").mkdir()
    return folder


@pytest.fixture
def called(cli: Cli, folder: Path) -> Cli:
    """By somebody who has a clone and nothing else."""
    home = str(folder.parent / "home")
    return partial(cli, at=folder, HOME=home, GPU_CLUSTERS_ENGINE="embedded")


@pytest.fixture
def init(called: Cli, folder: Path) -> Init:
    def init(kind: str, answers: Mapping[str, str], *words: str) -> Any:
        file = folder / "answers.yaml"
        file.write_text(yaml.safe_dump(dict(answers)))
        return called("init", kind, "--answers", file, "--accept-host-keys", *words)

    return init


def written(folder: Path) -> StackConfig:
    config = check_stack_file(folder / "Pulumi.prod.yaml")
    assert isinstance(config, StackConfig)
    return config


@pytest.mark.parametrize("kind", list(ANSWERS))
def test_answers_become_a_stack_that_is_right(
    folder: Path, init: Init, machines: str, kind: str
) -> None:
    secret = folder.parent / "kubeconfig"
    secret.write_text("clusters: []\n")
    given = ["--secret", f"kubeconfig={secret}"] if kind == "caas" else []
    done = init(kind, ANSWERS[kind] | {"machines": machines}, *given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert written(folder).cluster_type == kind
    text = (folder / "Pulumi.prod.yaml").read_text()
    for key in KEYS:
        assert key.get_fingerprint() in done.stdout
        assert key.export_public_key().decode().strip() in text
    passphrase = folder.parent / "home" / ".config" / "gpu-clusters" / "prod.passphrase"
    assert passphrase.stat().st_mode & 0o777 == 0o600
    after = done.stdout.split("next:\n")[1].splitlines()
    assert [line.split()[0] for line in after][:2] == ["export", "export"]
    assert after[-1].strip() == "gpu-clusters up --stack prod"
    left = {line.split()[4] for line in after if "config set --secret" in line}
    assert left == ({"controller-ssh-private-key", "bmc-password"} if kind == "caas" else set())
    sealed = yaml.safe_load(text)["config"].get("gpu-clusters:kubeconfig", {})
    assert set(sealed) == ({"secure"} if kind == "caas" else set())


def test_the_tutorial_shows_a_real_run(folder: Path, called: Cli, machines: str) -> None:
    """From a clone to the preview of one's own stack file, as docs/rke2.md says it."""
    (folder / "gpuclusters").rmdir()
    for path in ROOT.iterdir():
        if path.name not in {".git", ".lab", "Pulumi.yaml"}:
            (folder / path.name).symlink_to(path)
    page = ROOT / "docs" / "rke2.md"
    (block,) = [one for one in blocks(page) if "gpu-clusters init" in one.text and "$ " in one.text]
    env: dict[str, str] = {}
    for command, expected in typed(block):
        program, *arguments = shlex.split(command)
        if program == "export":
            name, _, value = arguments[0].partition("=")
            env[name] = value.replace("/home/ops", str(folder.parent / "home"))
        elif program == "cat":
            answers = yaml.safe_load(block.text.split("answers.yaml\n", 1)[1].split("\n$", 1)[0])
            answers["machines"] = machines.replace("m-1", "rke2-01").replace("m-2", "a100-01")
            (folder / arguments[0]).write_text(yaml.safe_dump(answers))
        else:
            assert program == "gpu-clusters"
            done = called(*arguments, **env)
            printed = "\n".join(one.rstrip() for one in done.stdout.strip().splitlines())
            assert re.fullmatch(expected, printed, re.DOTALL), printed + done.stderr
            assert (done.stdout + done.stderr).count("rke2.single-server") <= 1


def test_a_managed_cluster_is_asked_for_no_machine_and_no_host_key(
    folder: Path, init: Init
) -> None:
    given = {"project": "acme-study", "api-ranges": "198.51.100.7/32", "nodes": "3"}
    done = init("gke", given)
    assert done.returncode == 0, done.stdout + done.stderr
    config = written(folder)
    assert config.cluster_type is ClusterType.GKE
    assert [(pool.name, pool.nodes) for pool in config.section.pools] == [("system", 1), ("gpu", 3)]
    assert config.section.zone == "us-central1-a"
    assert "config set --secret" not in done.stdout
    assert done.stdout.rstrip().endswith("gpu-clusters up --stack prod")
    # A stack file that exists is never written over.
    before = (folder / "Pulumi.prod.yaml").read_text()
    done = init("rke2", ANSWERS["rke2"])
    assert done.returncode == 2
    assert "Pulumi.prod.yaml exists already" in done.stderr
    assert (folder / "Pulumi.prod.yaml").read_text() == before


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["name"])
def test_what_is_wrong_is_said_at_once_and_nothing_is_written(
    folder: Path, init: Init, machines: str, case: dict[str, Any]
) -> None:
    answers = ANSWERS.get(case["type"], {}) | case["answers"]
    if answers.get("machines") == "those that answer":
        answers["machines"] = machines
    done = init(case["type"], answers)
    assert done.returncode == case["code"]
    assert [part for part in case["says"] if part not in done.stderr] == []
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("Pulumi.prod.yaml"))
    assert not list((folder.parent / "home").iterdir())


@pytest.mark.parametrize("kind", list(ClusterType))
def test_an_answer_that_is_missing_or_of_the_wrong_form_is_named(kind: ClusterType) -> None:
    with pytest.raises(UsageError, match="'m-1' is not of the form NAME=VALUE"):
        interview.document(kind, "prod", {"machines": "m-1"}, {})
    if kind is ClusterType.RKE2:
        with pytest.raises(UsageError, match="ask for machines, checksum;"):
            interview.ask(kind, {})
