"""A checkpoint with resources of plugins, as the real engine and the real plugins write it, previews empty.

Written by hand after the sources: of the engine `pkg/resource/stack/deployment.go` and
`pkg/resource/deploy/providers/registry.go` (pulumi/pulumi, 2026-08-21), of pulumi-command 1.2.1
`provider/pkg/provider/remote/connection.go`, of pulumi-kubernetes 4.32 `Release` in
`provider/pkg/provider/helm_release.go` (`takeOwnership` came with 4.33).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import secrets
from engine.values import SECRET, SIGNATURE
from tests.engine.processkit import PROGRAMS, SALT, Engine, engine

__all__ = ["engine"]
pytestmark = pytest.mark.timeout(200)

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJq3D1mXbYV3kZ4m3fnBZ0fQKq6wX9l6nYg5o8p1e7Xc"
PROGRAM = PROGRAMS["plugins"].replace("HOST_KEY", HOST_KEY)
CONNECTION = {
    "dialErrorLimit": 10, "host": "192.0.2.7", "hostKey": HOST_KEY, "perDialTimeout": 15, "port": 22,
    "user": "root",
}  # fmt: skip
RESOURCES = Path(__file__).with_name("plugins.json").read_text()
"""As the real engine and plugins write them; the last is a release of Helm."""


def checkpoint(inner: str = "plaintext", *, release: bool = False) -> dict[str, Any]:
    """A checkpoint whose secret connection has a secret inside, as `inner` spells it."""
    crypter = secrets.SecretsManager(SALT, lambda: "test")

    def sealed(value: Any) -> dict[str, str]:
        return {SIGNATURE: SECRET, "ciphertext": crypter.encrypt(json.dumps(value))}

    key = {SIGNATURE: SECRET, inner: json.dumps("the key")}
    inputs = dict(json.loads(RESOURCES)[-1]["inputs"])
    inputs["values"] = {
        **inputs["values"],
        "password": {SIGNATURE: SECRET, "plaintext": '"hidden"'},
    }
    text = RESOURCES
    for mark, value in (
        ("<connection>", {**CONNECTION, "privateKey": key}),
        ("<password>", "hidden"),
        ("<inputs>", inputs),
    ):
        text = text.replace(json.dumps(mark), json.dumps(sealed(value)))
    resources = json.loads(text)
    return {
        "version": 3,
        "deployment": {
            "manifest": {"time": "2026-11-20T00:00:00Z", "magic": "", "version": "v3.272.0"},
            "secrets_providers": {"type": "passphrase", "state": {"salt": SALT}},
            "resources": resources if release else resources[:-1],
        },
    }


def taken_over(engine: Engine, state: dict[str, Any]) -> str:
    file = engine.folder / "state.json"
    file.write_text(json.dumps(state))
    engine.run("stack", "import", "--stack", "dev", "--file", str(file))
    return engine.run("preview", "--stack", "dev", "--expect-no-changes", "--diff")


def test_a_checkpoint_of_the_real_engine_previews_empty_and_is_like_ours(engine: Engine) -> None:
    engine.program(PROGRAM.partition("inside =")[0])
    engine.up()
    ours, theirs = (
        next(r for r in resources if r["type"] == "pulumi:providers:kubernetes")
        for resources in (engine.state()["resources"], checkpoint()["deployment"]["resources"])
    )
    assert [ours[key] for key in ("inputs", "outputs")] == [theirs["inputs"], theirs["outputs"]]
    engine.program(PROGRAM)
    for inner in ("plaintext", "ciphertext"):
        assert "the key" not in taken_over(engine, checkpoint(inner))
    engine.program(PROGRAM.replace("192.0.2.7", "192.0.2.8"))
    assert "connection" in engine.run("preview", "--stack", "dev", "--diff")


@pytest.mark.lab
def test_a_helm_release_of_the_real_plugin_previews_empty(engine: Engine) -> None:
    folder = engine.folder / "demo"
    folder.mkdir()
    (folder / "Chart.yaml").write_text(
        "apiVersion: v2\nname: demo\nversion: 1.2.3\nappVersion: '9'\n"
    )
    engine.program(PROGRAM + PROGRAMS["release"])
    taken_over(engine, checkpoint(release=True))
    engine.program(PROGRAM + PROGRAMS["release"].replace('"small"', '"large"'))
    assert "size" in engine.run("preview", "--stack", "dev", "--diff")
