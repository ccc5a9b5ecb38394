"""Whole runs of the engine that make machines on a double of the Compute API."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.warmkit import warm_engine
from tests.providers.compute_double import TOKEN, Cloud, compute_double

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "gpuclusters/providers"
A, B = "us-central1-a", "us-central1-b"
STOCK = ("ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available")
PROGRAM = """
import json, pulumi
from gpuclusters.gcp.resource import GcpMachine, GcpQuota
from gpuclusters.gcp.resource import SshHostKey
wanted = json.load(open("wanted.json"))
quota = GcpQuota("quota", project="p", region="us-central1", owner="lab",
                 machines={name: {"NVIDIA_V100_GPUS": 1} for name in wanted["machines"]})
for name in wanted["machines"]:
    key = SshHostKey(f"{name}-key", machine=name)
    inputs = {"project": "p", "zones": wanted["zones"], "name": name, "owner": "lab",
              "machine_type": "n1-standard-8", "gpus": 1, "disk": {"image": "i", "size_gib": 256},
              "accelerator": {"type": "nvidia-tesla-v100", "count": 1},
              "subnetwork": "s", "service_account": "a", "user_data": pulumi.Output.secret(key.private_key)}
    made = GcpMachine(name, **inputs, opts=pulumi.ResourceOptions(depends_on=[quota]))
    pulumi.export(name, made.zone)
"""


@dataclass
class Runs:
    """A stack, and the cloud that it is on."""

    folder: Path
    cloud: Cloud
    environment: dict[str, str]
    command: Path

    def want(self, machines: list[str], zones: list[str]) -> None:
        wanted = {"machines": machines, "zones": zones}
        (self.folder / "wanted.json").write_text(json.dumps(wanted))

    def engine(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(self.command), *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        return done.returncode, done.stdout + done.stderr

    def up(self, *options: str) -> tuple[int, str]:
        return self.engine("up", "--yes", "--skip-preview", "--stack", "lab", *options)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    plugin = {"name": "gpu-clusters", "path": str(PLUGIN)}
    project = {"name": "machines", "runtime": "python", "plugins": {"providers": [plugin]}}
    (tmp_path / "Pulumi.yaml").write_text(json.dumps(project))
    (tmp_path / "__main__.py").write_text(PROGRAM)
    (tmp_path / "state").mkdir()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("GOOGLE_", "PULUMI_"))},
        "PULUMI_BACKEND_URL": (tmp_path / "state").as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "p",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
        "PULUMI_PYTHON_CMD": sys.executable,
        "GOOGLE_OAUTH_ACCESS_TOKEN": TOKEN,
    }
    with compute_double() as cloud, warm_engine() as warm:
        made = Runs(tmp_path, cloud, environment, warm.engine)
        made.engine("stack", "init", "lab")
        made.engine("config", "set", "gcp:computeCustomEndpoint", cloud.url, "--stack", "lab")
        yield made


def test_machines_that_exist_stay_while_others_are_made_elsewhere(runs: Runs) -> None:
    runs.cloud.quotas["NVIDIA_V100_GPUS"] = (1, 0)
    runs.want(["gpu-1", "gpu-2"], [A, B])
    code, said = runs.up()
    assert code != 0
    assert "NVIDIA_V100_GPUS needs 2 more and 1 of 1 are free" in said
    assert not runs.cloud.instances

    runs.cloud.quotas["NVIDIA_V100_GPUS"] = (9, 0)
    runs.want(["gpu-1"], [A, B])
    assert runs.up()[0] == 0

    runs.cloud.refuses[A] = STOCK
    runs.want(["gpu-1", "gpu-2"], [A, B])
    code, said = runs.up()
    assert code == 0, said
    assert set(runs.cloud.instances) == {(A, "gpu-1"), (B, "gpu-2")}
    assert runs.up("--expect-no-changes")[0] == 0

    runs.want(["gpu-2"], [B])
    assert runs.up()[0] == 0
    assert set(runs.cloud.instances) == {(B, "gpu-2")}
    assert runs.cloud.inserts() == [A, A, B]
    (kept,) = (runs.folder / "state").rglob("stacks/**/lab.json")
    assert "PRIVATE KEY" not in kept.read_text()
