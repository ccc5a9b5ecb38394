"""Dated tables, and what is decided from them: releases, drivers, MIG, keys and values of the chart."""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuclusters.compat import dated_table, gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import ModulesPolicy, OperatingSystem
from gpuclusters.gpu_operator import keys, mig_layout
from gpuclusters.gpu_operator import values as gpu_operator_values
from gpuclusters.gpu_operator.keys import at
from gpuclusters.gpu_operator.values import ContainerDriver, OperatorSpec, registries
from gpuclusters.metrics import monitoring_stack
from gpuclusters.metrics.monitoring_stack import Monitoring
from gpuclusters.rke2 import decide, releases
from gpuclusters.rke2.model import LiveHost, taint_changes
from gpuclusters.rke2.releases import Role, parse_version
from lab.hosts.rke2 import rke2_release
from tests.fixtures.tables import beside

ANSWERS = beside(__file__, "rke2_answers.yaml")
WISHES = beside(__file__, "operator_values.yaml")
A100 = "a100-sxm4-80gb"
MIG_CUTS = beside(__file__, "a100_mig_cuts.yaml")
_PROFILE = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}


def _told(problem: str | None, *words: str) -> str | None:
    """Which of the words a problem has; the problem itself where it has none of them."""
    return next((one for one in words if problem and one in problem), problem)


def _step(installed: str, wanted: str) -> str | None:
    problem = releases.step_problem(parse_version(installed), parse_version(wanted))
    return _told(problem, "skips a minor", "no downgrade")


def _skew(server: str, agent: str) -> str | None:
    problem = releases.skew_problem(parse_version(server), parse_version(agent))
    return _told(problem, "servers are upgraded first", "more than three minors older")


def _drop_ins(version: str) -> str:
    found = rke2_matrix.drop_ins(parse_version(version))
    assert rke2_release.imports_drop_ins(version) is (found != "no")
    return found


def _containerd(version: str) -> list[int] | None:
    found = rke2_matrix.containerd(parse_version(version))
    return found and list(found)


def _modules_fit(modules: str, branch: int, generation: str) -> bool:
    one = Architecture(generation)
    return rke2_matrix.module_problem(ModulesPolicy(modules), branch, one) is None


def _certificate(expires: str) -> str | None:
    live = LiveHost(clock=1795392000, expires=expires)  # 2026-11-23
    problems = [one.problem for one in decide.certificate(Role.AGENT, live)]
    assert len(problems) < 2
    return (
        _told(*problems, "end on 2026-12-31, in 38 days", "ended on 2026-11-01")
        if problems
        else None
    )


ASKED: Mapping[str, Callable[..., Any]] = {
    "generation of a PCI id": gpu_products.generation,
    "containerd of a release": _containerd,
    "default branch": lambda one, least: rke2_matrix.newest_branch_for(Architecture(one), least),
    "last branch": lambda one: rke2_matrix.last_branch_for(Architecture(one)),
    "newest driver": rke2_matrix.newest_driver,
    "modules fit": _modules_fit,
    "switches": gpu_products.has_nvswitch,
    "key of the chart": lambda major, key: tuple(key.split(".")) in keys.tree_of(major),
    "kind of a key": lambda key: keys.tree_of("26.7")[tuple(key.split("."))],
    "step to a release": _step,
    "agent with a server": _skew,
    "drop-ins of containerd": _drop_ins,
    "end of a certificate": _certificate,
    "changes of taints": lambda *given: list(taint_changes(*given)),
}
ROWS = [
    pytest.param(question, *row, id=f"{question}-{number}")
    for question, rows in ANSWERS.items()
    for number, row in enumerate(([given, answer] for *given, answer in rows), 1)
]


@pytest.mark.parametrize(("question", "given", "answer"), ROWS)
def test_what_tables_and_rules_answer(question: str, given: list[Any], answer: Any) -> None:
    assert ASKED[question](*given) == answer


def test_an_operator_of_tomorrow_reads_the_keys_of_the_newest_that_is_known() -> None:
    assert keys.tree_of("99.9") == keys.tree_of("26.7")


def test_texts_about_old_gpus_name_the_last_branch_that_knows_volta() -> None:
    texts = (dated_table.FOLDER / "known_errors").glob("*.yaml")
    named = re.findall(r"branch:? (\d{3})", "".join(path.read_text() for path in texts))
    assert set(named) == {str(rke2_matrix.last_branch_for(Architecture.VOLTA))}


def _slices(sizes: tuple[int, ...]) -> Mapping[str, int]:
    return {_PROFILE[size]: sizes.count(size) for size in sorted(set(sizes))}


def test_rows_of_one_table_are_those_of_the_others() -> None:
    majors = set(rke2_matrix.operators().majors)
    assert {rke2_matrix.operator_major(v) for v in rke2_matrix.operators().releases} == majors
    assert set(keys.table().majors) == majors
    for one in rke2_matrix.operators().majors.values():
        assert all(rke2_matrix.branch(rke2_matrix.branch_of(d)) for d in one.drivers)
    for release in rke2_matrix.operators().releases.values():
        assert rke2_matrix.branch(rke2_matrix.branch_of(release.default_driver)) is not None
        assert all(re.fullmatch(r"[^:]+:[^:]+", image) for image in release.images.values())
    for product in gpu_products.table().products.values():
        assert product.mig is None or product.mig in gpu_products.table().families


def test_the_largest_profile_of_a_product_is_the_whole_of_it() -> None:
    for name, product in gpu_products.table().products.items():
        found = mig_layout.family(name)
        if found is None:
            continue
        kind = gpu_products.table().kinds[found.kind]
        whole = f"{kind.slices[0]}x{kind.slices[1]}"
        memory = max(size for shape, size, _ in found.profiles.values() if shape == whole)
        assert memory == product.memory_gib, name


def test_a_product_that_is_not_in_the_table_is_written_by_pci_id_and_memory() -> None:
    found = gpu_products.product("10de:2503-12gb")
    assert (found.architecture, found.memory_gib) == (Architecture.AMPERE, 12)
    assert not gpu_products.has_nvswitch("10de:2503-12gb", 8)
    for wrong in ("10de:2503", "10de:2503-0gb", "8086:2503-12gb", "10de:228e-12gb"):
        with pytest.raises(KeyError):
            gpu_products.product(wrong)


def test_a_cut_fits_exactly_if_it_is_part_of_one_in_nvidias_table() -> None:
    # No more than the guide's table allows, and nothing less: all sums of at most seven slices.
    for length in range(1, 8):
        for sizes in itertools.combinations_with_replacement((1, 2, 3, 4, 7), length):
            if sum(sizes) > 7:
                continue
            inside = any(
                all(sizes.count(size) <= whole.count(size) for size in set(sizes))
                for whole in MIG_CUTS
            )
            assert (mig_layout.problem(A100, _slices(sizes)) is None) is inside, sizes


@pytest.mark.parametrize("product", [n for n in gpu_products.names() if mig_layout.family(n)])
def test_named_layouts_of_a_product_fit_on_it_and_one_more_does_not(product: str) -> None:
    found = mig_layout.family(product)
    assert found is not None
    for layout, slices in mig_layout.layouts(product).items():
        assert not slices or mig_layout.problem(product, slices) is None, layout
    for profile, (_, _, most) in found.profiles.items():
        problem = mig_layout.problem(product, {profile: most + 1})
        assert problem is not None
        assert f"a GPU holds {most}" in problem


def test_a_profile_of_another_memory_size_is_named_with_those_that_there_are() -> None:
    assert mig_layout.problem("a100-sxm4-40gb", {"1g.10gb": 4}) is None
    problem = mig_layout.problem("h200-sxm5-141gb", {"1g.10gb": 1})
    assert problem == (
        "h200-sxm5-141gb has no profile 1g.10gb; it has 1g.18gb, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb, "
        "7g.141gb, 1g.18gb+me"
    )
    assert mig_layout.problem("l40s", {"1g.10gb": 1}) == "l40s cannot be cut by MIG"


def test_images_for_a_mirror_name_the_drivers_operating_system() -> None:
    spec = OperatorSpec(
        version="v26.7.0",
        driver=ContainerDriver(version="595.91.07"),
        systems=[OperatingSystem.UBUNTU_24_04],
        mig=True,
    )
    images = gpu_operator_values.references(spec)
    assert "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04" in images
    assert "nvcr.io/nvidia/gpu-operator:v26.7.0" in images
    assert "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0" in images
    assert registries(images) == ("nvcr.io", "registry.k8s.io")
    bare = OperatorSpec(version="v26.7.0", node_feature_discovery=False)
    whole = gpu_operator_values.references(bare)
    assert registries(whole) == ("nvcr.io",)
    assert not any("driver" in image for image in whole)


@pytest.mark.parametrize("case", WISHES.values(), ids=WISHES)
def test_what_the_operators_chart_is_told(case: Mapping[str, Any]) -> None:
    wish = dict(case["wish"])
    wish["systems"] = [OperatingSystem(name) for name in wish.get("systems", ())]
    driver = ContainerDriver(**case["driver"]) if "driver" in case else None
    for version in {wish["version"], *rke2_matrix.operators().releases, "v26.7.5"}:
        for monitoring in Monitoring:
            metrics = monitoring_stack.operator_values(monitoring)
            spec = OperatorSpec(**{**wish, "version": version}, driver=driver)
            derived = gpu_operator_values.values(spec, metrics)
            assert list(keys.problems(derived, rke2_matrix.operator_major(version))) == []
    found = gpu_operator_values.values(OperatorSpec(**wish, driver=driver))
    for key, told in case["told"].items():
        operand, _, of = key.partition(".")
        assert (keys.environment(found, operand) if of == "env" else at(found, key)) == told
