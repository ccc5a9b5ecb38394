"""What kubelets and containerds of a `caas` cluster are told follows from the versions that are stated."""

from __future__ import annotations

import tomllib

import yaml

from gpuclusters.config.plan import plan
from tests.unit.config.documents import accepted, base, caas


def test_an_old_containerd_is_told_to_read_cdi_specs_in_the_words_of_its_version() -> None:
    config = accepted(caas(kubernetes={"containerd": {"version": "1.7.27"}})).section
    document = tomllib.loads(config.kubernetes.containerd.drop_in)
    assert document["version"] == 2
    assert document["plugins"]["io.containerd.grpc.v1.cri"]["enable_cdi"] is True


def test_a_present_containerd_reads_them_by_itself() -> None:
    document = tomllib.loads(accepted(base()).section.kubernetes.containerd.drop_in)
    assert document["version"] == 3
    assert "enable_cdi" not in document["plugins"]["io.containerd.cri.v1.runtime"]


def test_a_configuration_file_of_the_other_version_is_stated() -> None:
    config = accepted(caas(kubernetes={"containerd": {"config-version": "2"}})).section
    document = tomllib.loads(config.kubernetes.containerd.drop_in)
    assert document["version"] == 2
    assert "enable_cdi" not in document["plugins"]["io.containerd.grpc.v1.cri"]


def test_kubelets_before_1_34_get_the_gate_by_which_kata_learns_a_pods_gpus() -> None:
    told = {
        version: yaml.safe_load(
            plan(accepted(caas(kubernetes={"version": version})).section).kubelet_drop_in
        ).get("featureGates")
        for version in ("1.33.4", "1.34.0")
    }
    assert told == {"1.33.4": {"KubeletPodResourcesGet": True}, "1.34.0": None}
