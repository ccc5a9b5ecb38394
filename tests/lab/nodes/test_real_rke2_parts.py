"""What RKE2 of the lab writes for a real node, and what containers are given of its GPUs: without a node."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lab.gpu_operator import device_nodes
from lab.hosts.rke2.rke2_release import CONFIG_FILE, CONFIG_FOLDER
from lab.nodes import rke2
from lab.nodes.folder import RealNodeFolder
from lab.pods import on_processor


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's."""
    return tmp_path / "root"


def put(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def prepared(root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Containerd's configuration after a start, and what of it is about runtimes."""
    rke2.prepare(RealNodeFolder(root.parent / "node"), root)
    read = tomllib.loads((root / rke2.CONFIGURATION.lstrip("/")).read_text())
    return read, read["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]


def test_runtimes_are_what_is_there_at_the_start(root: Path) -> None:
    assert "nvidia" not in prepared(root)[1]["runtimes"]
    program = put(root, f"{rke2.TOOLKIT}/nvidia-container-runtime", "", 0o755)
    put(root, "/usr/bin/nvidia-container-runtime", "", 0o755)
    put(root, "/usr/bin/nvidia-container-runtime.cdi", "", 0o644)
    found = prepared(root)[1]["runtimes"]
    # The operator's before the distribution's; what cannot be executed is none.
    assert found["nvidia"]["options"]["BinaryName"] == f"{rke2.TOOLKIT}/nvidia-container-runtime"
    assert "nvidia-cdi" not in found
    program.unlink()
    assert rke2.runtimes(root) == {"nvidia": "/usr/bin/nvidia-container-runtime"}


def test_a_template_extends_what_rke2_writes_or_is_refused(root: Path) -> None:
    put(root, rke2.TEMPLATE, '{{ template "base" . }}\n[debug]\n  level = "debug"\n')
    found, tables = prepared(root)
    assert found["debug"] == {"level": "debug"}
    assert "runc" in tables["runtimes"]
    assert found["imports"] == [f"{rke2.CONTAINERD}/config-v3.toml.d/*.toml"]
    put(root, rke2.TEMPLATE, "{{ if .IsRunningInUserNS }}x{{ end }}")
    with pytest.raises(rke2.Rke2Error, match="IsRunningInUserNS"):
        prepared(root)
    (root / rke2.TEMPLATE.lstrip("/")).unlink()
    put(root, rke2.OLD_TEMPLATE, '{{ template "base" . }}\n')
    with pytest.raises(rke2.Rke2Error, match=r"config\.toml\.tmpl is for containerd 1"):
        prepared(root)


def test_the_configuration_names_the_default_handler_and_the_kubelets_arguments(root: Path) -> None:
    put(root, CONFIG_FILE, "default-runtime: nvidia\nkubelet-arg: [max-pods=250]\n")
    folder = f"{CONFIG_FOLDER}/10-more.yaml"
    put(root, folder, "kubelet-arg+: ['--serialize-image-pulls=false']\n")
    put(root, f"{rke2.TOOLKIT}/nvidia-container-runtime", "", 0o755)
    _, tables = prepared(root)
    assert tables["default_runtime_name"] == "nvidia"
    told = json.loads((root / rke2.KUBELET_ARGUMENTS.lstrip("/")).read_text())
    assert (told["maxPods"], told["serializeImagePulls"]) == (250, False)


def test_every_gpu_and_every_slice_has_nodes_of_its_own() -> None:
    slices = [f"{gpu}:{number}" for gpu in range(8) for number in range(7)]
    found = [device_nodes.nodes_of(one).items() for one in slices]
    own = [number for nodes in found for path, number in nodes if "caps" in path]
    assert len(own) == len(set(own)) == 2 * len(slices)
    assert device_nodes.nodes_of("3") == {"/dev/nvidia3": 3}
    # A GPU that is handed out several times is one GPU.
    assert device_nodes.names(["0::1", "0::0", "1::0"]) == ["0", "1"]
    stated = device_nodes.specification(["0", "1:2"])
    assert stated["kind"] == "nvidia.com/gpu"
    assert [one["name"] for one in stated["devices"]] == ["0", "1:2"]


@pytest.mark.parametrize(
    ("given", "count"),
    [(["0", "3"], 2), (["1:0"], 1), (["1:0", "1:6", "2:0"], 3), (["0", "1:0", "1:1"], 3)],
)
def test_a_container_computes_on_each_gpu_and_each_slice_that_it_was_given(
    given: list[str], count: int
) -> None:
    paths = {Path(path) for one in given for path in device_nodes.nodes_of(one)}
    nodes, capabilities = (
        [path.name for path in paths if path.parent == Path(folder)]
        for folder in ("/dev", "/dev/nvidia-caps")
    )
    assert on_processor.counted(["null", "nvidiactl", "nvidia-uvm", *nodes], capabilities) == count


def test_a_container_computes_on_each_gpu_that_its_virtual_machine_would_have() -> None:
    assert on_processor.counted(["null", "vfio", "7", "12"], []) == 2
