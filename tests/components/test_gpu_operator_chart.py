"""NVIDIA's own chart, where one is given by `GPU_OPERATOR_CHART`: our values fit it.

The chart has no schema and takes a mistyped key without a word, so that only its own tree of values can tell.
"""

import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.compat.rke2_matrix import ModulesPolicy
from gpuclusters.core.model import merged
from gpuclusters.gpu_operator import crds, objects
from gpuclusters.gpu_operator.crds import crd_documents
from gpuclusters.gpu_operator.values import ContainerDriver, OperatorSpec, values
from lab import tools

VARIABLE = "GPU_OPERATOR_CHART"
STAND_IN = Path(__file__).resolve().parents[2] / "lab" / "charts" / "gpu-operator"
RENDERED_THOUGH_ABSENT = {
    ("operator", "version"),
    ("validator", "version"),
    ("validator", "driver"),
    ("validator", "toolkit"),
    ("validator", "cuda"),
    ("dcgmExporter", "config"),
}
"""Values that the templates read although values.yaml has them only as comments."""
NFD = "node-feature-discovery"
DRIVER = ContainerDriver(version="580.173.02", modules=ModulesPolicy.PROPRIETARY)
WISHES = {
    "host-driver": OperatorSpec(version="v26.7.0"),
    "container-driver": OperatorSpec(version="v26.7.0", driver=DRIVER),
    "mig": OperatorSpec(version="v26.7.0", mig_strategy="mixed", mig_reboot=True),
    "taints": OperatorSpec(
        version="v26.7.0",
        taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}],
        untainted=False,
    ),
    "nri": OperatorSpec(version="v26.7.0", nri_plugin=True),
    "large": OperatorSpec(
        version="v26.7.0", nodes=400, host_engine=True, scrape_interval_seconds=30
    ),
}
CONFIGS = {
    "device-plugin": {"sliced": "version: v1"},
    "dcgm-metrics": {"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, temperature"},
    "mig-parted": {"config.yaml": "version: v1"},
}


@pytest.fixture(scope="module")
def chart(tools_at_hand: None) -> Path:
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(f"{VARIABLE} is not set: give the path of NVIDIA's chart, a folder or a .tgz")
    path = Path(given)
    assert path.exists(), f"{VARIABLE}: there is no {path}"
    return path


def chart_file(chart: Path, name: str) -> Any:
    if chart.is_dir():
        return yaml.safe_load((chart / name).read_text())
    with tarfile.open(chart) as archive:
        file = archive.extractfile(f"gpu-operator/{name}")
        assert file is not None
        return yaml.safe_load(file.read())


def tree_of(chart: Path) -> Mapping[str, Any]:
    """The chart's values, with those of its subchart where they belong."""
    own = chart_file(chart, "values.yaml")
    return {**own, NFD: merged(chart_file(chart, f"charts/{NFD}/values.yaml"), own.get(NFD) or {})}


def paths(tree: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Paths of `tree` as deep as `known` says what there is; below a value that is empty anything goes."""
    for key, value in tree.items():
        below = known.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and below:
            yield from ((key, *rest) for rest in paths(value, below))
        else:
            yield (key,)


def unknown(tree: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Paths that the chart does not have."""

    def has(path: tuple[str, ...]) -> bool:
        at: Any = known
        for step in path:
            if not isinstance(at, Mapping) or step not in at:
                return path in RENDERED_THOUGH_ABSENT
            at = at[step]
        return True

    return [".".join(path) for path in paths(tree, known) if not has(path)]


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES.keys())
def test_every_key_that_we_set_is_in_the_charts_tree(chart: Path, wish: OperatorSpec) -> None:
    ours = objects.with_configs(values(wish), CONFIGS)
    assert unknown(ours, tree_of(chart)) == []


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES.keys())
def test_the_chart_renders_with_our_values(chart: Path, wish: OperatorSpec) -> None:
    ours = objects.with_configs(values(wish), CONFIGS)
    done = subprocess.run(
        [
            str(tools.resolve("helm")),
            "template",
            "gpu-operator",
            str(chart),
            "--skip-crds",
            "-f",
            "-",
        ],
        input=yaml.safe_dump(ours),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    documents = [one for one in yaml.safe_load_all(done.stdout) if one]
    (policy,) = [one for one in documents if one["kind"] == "ClusterPolicy"]
    assert policy["spec"]["mig"]["strategy"] == wish.mig_strategy
    assert policy["spec"]["driver"]["enabled"] is (wish.driver is not None)
    for section, key in objects.CONFIGS.values():
        assert policy["spec"][section][key]["name"] == ours[section][key]["name"]


def test_the_stand_in_invents_no_value(chart: Path) -> None:
    mine = yaml.safe_load((STAND_IN / "values.yaml").read_text())
    assert unknown(mine, tree_of(chart)) == []


def test_its_definitions_are_found_with_and_without_those_of_node_feature_discovery(
    chart: Path,
) -> None:
    documents = crd_documents(str(chart), version="", repository="", sha256="")
    every = [c["metadata"]["name"] for c in crds.definitions(documents, with_nfd=True)]
    own = [c["metadata"]["name"] for c in crds.definitions(documents, with_nfd=False)]
    assert "nodefeatures.nfd.k8s-sigs.io" in set(every) - set(own)
    assert {"clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com"} <= set(own)


def test_an_unknown_key_would_be_found() -> None:
    known = {"driver": {"enabled": True, "env": []}, "toolkit": {"env": [], "config": {}}}
    tree = {"driver": {"useOpen": True, "env": [1]}, "toolkit": {"config": {"any": 1}}, "psp": {}}
    assert unknown(tree, known) == ["driver.useOpen", "psp"]
