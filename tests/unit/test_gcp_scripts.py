"""What runs on a machine of Google Cloud at its boot and before it is saved, run for real on a folder."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuclusters.gcp.cloud_init import PLACES
from lab.tools import debian_packages
from tests.fixtures.debian import libraries
from tests.fixtures.tables import beside

SCRIPTS = Path(__file__).resolve().parents[2] / "gpuclusters/gcp/scripts"
NODE = "home/ubuntu/.local/share/gpu-clusters/usernetes"
CASES = beside(__file__, "gcp_programs.yaml")


@dataclass
class Machine:
    """A folder that stands for a machine, with commands that write down how they were called."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HERE": str(self.folder),
            "GPU_CLUSTERS_ROOT": str(self.root),
        }
        (self.folder / "log").write_text("")
        command = ["sh", str(SCRIPTS / script), "ubuntu"]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()

    def write(self, path: str, text: str = "x") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "instance-id").write_text("1234\n")
    for name, body in CASES["fakes"].items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    made.root.mkdir()
    yield made
    shutil.rmtree(tmp_path)


def test_a_machine_made_from_an_image_forgets_the_one_it_was_taken_from(machine: Machine) -> None:
    stale = [
        machine.write("etc/cdi/nvidia.yaml"),
        machine.write(f"{NODE}/marks/joined"),
    ]
    machine.write("var/lib/gpu-clusters/instance-id", "99\n")
    assert machine.run("first-boot.sh").returncode == 0
    assert not any(file.exists() for file in stale)
    said = machine.log()
    assert "modprobe br_netfilter" in said
    assert "docker rm --force usernetes-node" in said
    down = "docker volume rm --force certificates"
    refresh = "systemctl restart nvidia-cdi-refresh.service"
    restart = "systemctl --user -M ubuntu@ restart docker.service"
    assert said.index(down) < said.index(refresh) < said.index(restart)
    assert (machine.root / "var/lib/gpu-clusters/instance-id").read_text() == "1234\n"


def test_a_boot_of_the_same_machine_only_loads_modules(machine: Machine) -> None:
    kept = machine.write(f"{NODE}/marks/joined")
    machine.write("var/lib/gpu-clusters/instance-id", "1234\n")
    assert machine.run("first-boot.sh").returncode == 0
    assert kept.exists()
    assert {line.split()[0] for line in machine.log()} == {"modprobe"}


def test_an_older_toolkit_writes_the_specification_by_command(machine: Machine) -> None:
    (machine.folder / "no-units").touch()
    assert machine.run("first-boot.sh").returncode == 0
    output = f"{machine.root}/etc/cdi/nvidia.yaml"
    assert f"nvidia-ctk cdi generate --output={output} --device-name-strategy=uuid" in machine.log()


@pytest.mark.parametrize("broken", ["curl", "nvidia-ctk"])
def test_what_was_interrupted_is_done_again_at_the_next_boot(machine: Machine, broken: str) -> None:
    (machine.folder / "no-units").touch()
    program = machine.folder / "bin" / broken
    works = program.read_text()
    program.write_text("#!/bin/sh\nexit 7\n")
    assert machine.run("first-boot.sh").returncode != 0
    assert not (machine.root / "var/lib/gpu-clusters/instance-id").exists()
    program.write_text(works)
    assert machine.run("first-boot.sh").returncode == 0


def test_an_image_holds_nothing_of_the_machine_it_is_made_of(machine: Machine) -> None:
    own = [
        machine.write("etc/ssh/ssh_host_ed25519_key"),
        machine.write("home/ubuntu/.ssh/authorized_keys"),
        machine.write(f"{NODE}/marks/joined"),
        machine.write("var/lib/gpu-clusters/instance-id"),
        machine.write("etc/cdi/nvidia.yaml"),
    ]
    driver = machine.write("usr/lib/nvidia/driver")
    done = machine.run("seal-image.sh")
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(file.exists() for file in own)
    assert driver.exists()
    assert (machine.root / "etc/machine-id").read_text() == ""
    assert machine.log()[-1] == "cloud-init clean --logs --seed"


@pytest.mark.parametrize("role", ["server", "agent"])
def test_a_node_of_a_cluster_is_not_made_an_image(machine: Machine, role: str) -> None:
    key = machine.write("etc/ssh/ssh_host_ed25519_key")
    machine.write(f"var/lib/rancher/rke2/{role}/token")
    done = machine.run("seal-image.sh")
    assert done.returncode == 65
    assert "remove it from the cluster first" in done.stderr
    assert key.exists()


def test_the_guard_of_the_metadata_server_is_a_table_that_nft_takes() -> None:
    allowed = subprocess.run(
        ["unshare", "-rn", "true"], capture_output=True, text=True, check=False
    )
    if allowed.returncode:
        pytest.skip(f"no network namespace of one's own here: {allowed.stderr.strip()}")
    rules = str(SCRIPTS / "gpu-clusters-metadata-guard.nft")
    folder = debian_packages.unpacked("nftables", CASES["packages-of-nft"])
    nft = folder / "usr/sbin/nft"
    twice = f"{nft} -f {rules} && {nft} -f {rules}"
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", twice],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=libraries(folder),
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", sorted(SCRIPTS.glob("*.service")), ids=lambda one: one.name)
def test_a_unit_starts_what_is_written_beside_it(unit: Path) -> None:
    (started,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(started.partition("=")[2])
    assert {place for place, _ in PLACES.values()} & set(words)
