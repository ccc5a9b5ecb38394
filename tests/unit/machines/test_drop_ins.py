import tomllib

import pytest
import yaml

from gpuclusters.host.drop_ins import ContainerdSchema, containerd, kubelet


def test_the_kubelet_waits_for_slow_virtual_machines() -> None:
    document = yaml.safe_load(kubelet(runtime_request_timeout_seconds=1200))
    assert document["kind"] == "KubeletConfiguration"
    assert document["runtimeRequestTimeout"] == "1200s"
    assert "featureGates" not in document


def test_an_old_kubelet_is_told_to_say_which_gpus_a_pod_was_given() -> None:
    text = kubelet(runtime_request_timeout_seconds=1200, pod_resources_get=True)
    assert yaml.safe_load(text)["featureGates"] == {"KubeletPodResourcesGet": True}


@pytest.mark.parametrize(
    ("schema", "runtime", "images"),
    [
        (ContainerdSchema.V2, "io.containerd.grpc.v1.cri", "io.containerd.grpc.v1.cri"),
        (ContainerdSchema.V3, "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"),
    ],
)
def test_containerd_settings_stand_under_the_ids_of_their_schema(
    schema: ContainerdSchema, runtime: str, images: str
) -> None:
    text = containerd(schema=schema, enable_cdi=True, image_pull_progress_timeout_seconds=1800)
    document = tomllib.loads(text)
    assert document["version"] == int(schema)
    assert document["plugins"][runtime]["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert document["plugins"][runtime]["enable_cdi"] is True
    assert document["plugins"][images]["image_pull_progress_timeout"] == "1800s"


def test_a_containerd_that_always_has_cdi_is_not_told_to() -> None:
    text = containerd(
        schema=ContainerdSchema.V3, enable_cdi=False, image_pull_progress_timeout_seconds=1800
    )
    assert "enable_cdi" not in text
