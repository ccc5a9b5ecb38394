"""NVIDIA's own chart, where one is given by `GPU_OPERATOR_CHART`: our values fit it.

The chart has no schema and takes a mistyped key without a word, so that only its own tree of values can tell.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from gpuclusters.core.model import merged
from gpuclusters.gpu_operator import crds, objects
from gpuclusters.gpu_operator.values import OperatorSpec, values
from lab import tools
from tests.fixtures.tables import beside

VARIABLE = "GPU_OPERATOR_CHART"
STAND_IN = Path(__file__).resolve().parents[2] / "lab" / "charts" / "gpu-operator"
NFD = "node-feature-discovery"
TABLES = beside(__file__, "gpu_operator_chart.yaml")


@pytest.fixture(scope="module")
def chart(tools_at_hand: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder."""
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(f"{VARIABLE} is not set: give the path of NVIDIA's chart, a folder or a .tgz")
    path = Path(given)
    assert path.exists(), f"{VARIABLE}: there is no {path}"
    if path.is_dir():
        return path
    folder = tmp_path_factory.mktemp("chart")
    shutil.unpack_archive(path, folder, filter="data")
    return folder / "gpu-operator"


@pytest.fixture(scope="module")
def tree(chart: Path) -> Mapping[str, Any]:
    """The chart's values, with those of its subchart where they belong."""
    own = yaml.safe_load((chart / "values.yaml").read_text())
    below = yaml.safe_load((chart / f"charts/{NFD}/values.yaml").read_text())
    return {**own, NFD: merged(below, own.get(NFD) or {})}


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
                return list(path) in TABLES["rendered though absent"]
            at = at[step]
        return True

    return [".".join(path) for path in paths(tree, known) if not has(path)]


@pytest.mark.parametrize("wish", TABLES["wishes"].values(), ids=TABLES["wishes"])
def test_every_key_that_we_set_is_in_the_charts_tree_and_it_renders(
    chart: Path, tree: Mapping[str, Any], wish: dict[str, Any]
) -> None:
    spec = TypeAdapter(OperatorSpec).validate_python({"version": "v26.7.0", **wish})
    ours = objects.with_configs(values(spec), TABLES["configs"])
    assert unknown(ours, tree) == []
    done = subprocess.run(
        [tools.resolve("helm"), "template", "gpu-operator", chart, "--skip-crds", "-f", "-"],
        input=yaml.safe_dump(ours), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    documents = [one for one in yaml.safe_load_all(done.stdout) if one]
    (policy,) = [one for one in documents if one["kind"] == "ClusterPolicy"]
    assert policy["spec"]["mig"]["strategy"] == spec.mig_strategy
    assert policy["spec"]["driver"]["enabled"] is (spec.driver is not None)
    for section, key in objects.CONFIGS.values():
        assert policy["spec"][section][key]["name"] == ours[section][key]["name"]


def test_the_stand_in_invents_no_value(tree: Mapping[str, Any]) -> None:
    assert unknown(yaml.safe_load((STAND_IN / "values.yaml").read_text()), tree) == []


def test_its_definitions_are_found_with_and_without_those_of_node_feature_discovery(
    chart: Path,
) -> None:
    documents = crds.crd_documents(str(chart), version="", repository="", sha256="")
    every = [c["metadata"]["name"] for c in crds.definitions(documents, with_nfd=True)]
    own = [c["metadata"]["name"] for c in crds.definitions(documents, with_nfd=False)]
    assert "nodefeatures.nfd.k8s-sigs.io" in set(every) - set(own)
    assert {"clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com"} <= set(own)


def test_an_unknown_key_would_be_found() -> None:
    known = {"driver": {"enabled": True, "env": []}, "toolkit": {"env": [], "config": {}}}
    tree = {"driver": {"useOpen": True, "env": [1]}, "toolkit": {"config": {"any": 1}}, "psp": {}}
    assert unknown(tree, known) == ["driver.useOpen", "psp"]
