"""Our files beside upstream's: they are what compose, systemd and a shell take."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from components.usernetes import OVERLAY
from gpuclusters.usernetes.model import words
from tests.rootless.node.configuration import layer

SCRIPTS = Path(__file__).resolve().parents[2] / "gpuclusters/usernetes"
FOLDER = SCRIPTS / "overlay"


def run(*command: str, text: str = "") -> tuple[int, str]:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_every_file_is_laid_over() -> None:
    assert set(OVERLAY) == {file.name for file in FOLDER.iterdir()}


def test_compose_asks_for_all_gpus_by_a_qualified_name_and_keeps_upstreams_build() -> None:
    stated = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    node = stated["services"]["node"]
    assert node["devices"] == ["nvidia.com/gpu=all"]
    # The build context stays upstream's, and nothing of it is hidden by a mount of ours.
    assert set(node) == {"container_name", "build", "devices", "labels"}
    assert "context" not in node["build"]
    variables = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    known = {"GPU_OVERLAY", "NVIDIA_CONTAINER_TOOLKIT_VERSION", "GPU_CLUSTERS_IMAGE", "NODE_MTU"}
    assert variables == known
    # A variable that is missing ends the call and is not taken for nothing.
    assert len(variables) == len(set(re.findall(r"\$\{(\w+):\?\}", str(stated))))


def test_the_image_pins_the_toolkit_and_puts_nothing_of_ours_under_a_volume() -> None:
    text = (FOLDER / "Dockerfile.gpu").read_text()
    assert text.count("=${NVIDIA_CONTAINER_TOOLKIT_VERSION}-1") == 4
    copied = re.findall(r"^COPY --from=overlay \S+ (\S+) (\S+)$", text, re.MULTILINE)
    assert {source for source, _ in copied} == {"node-gpus.sh", "usernetes-gpus.service"}
    for _, target in copied:
        assert not target.startswith(("/etc/", "/opt/", "/var/")), target
    unit = (FOLDER / "usernetes-gpus.service").read_text()
    (start,) = re.findall(r"^ExecStart=(\S+)$", unit, re.MULTILINE)
    assert start in {target for _, target in copied}


def test_gpus_are_set_up_before_anything_that_uses_them_and_named_by_uuid() -> None:
    unit = (FOLDER / "usernetes-gpus.service").read_text()
    assert "Before=containerd.service kubelet.service" in unit
    text = (FOLDER / "node-gpus.sh").read_text()
    assert "--device-name-strategy=uuid" in text
    assert text.count("nvidia-ctk config --in-place") == 1
    assert "--set-as-default" in text
    assert "no-cgroups" not in text


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    program = tmp_path / "node-gpus"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "usernetes-gpus.service"
    text = (FOLDER / unit.name).read_text()
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={program}", text))
    code, said = run("systemd-analyze", "verify", "--man=no", str(unit))
    assert (code, said.replace(str(unit), "")) == (0, "")


def test_scripts_are_a_shells_whole_with_what_is_sent_before_them() -> None:
    before = (SCRIPTS / "scripts/environment.sh").read_text()
    for file in sorted((SCRIPTS / "scripts").glob("*.sh")):
        assert run("sh", "-n", text=before + file.read_text()) == (0, ""), file.name


def test_variables_are_words_of_one_line() -> None:
    assert words({"A": "b c", "D": ""}) == ["A=b c", "D="]


def test_rootless_nodes_of_tests_have_the_scripts_of_our_overlay_as_its_dockerfile_puts_them(
    tmp_path: Path,
) -> None:
    made = layer(tmp_path)
    lines = (FOLDER / "Dockerfile.gpu").read_text().splitlines()
    placed = [line.split() for line in lines if line.startswith("COPY")]
    assert placed
    for _, _, mode, name, place in placed:
        copy = made / place.lstrip("/")
        assert copy.read_bytes() == (FOLDER / name).read_bytes()
        assert f"{copy.stat().st_mode & 0o7777:04o}" == mode.removeprefix("--chmod=")
