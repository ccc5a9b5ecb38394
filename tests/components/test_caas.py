"""What the components of a caas cluster declare, without an engine."""

from typing import Any

import pulumi
import pytest

from components.caas.programs import ProgramNetwork, Programs
from components.caas.system import System
from components.caas.tenancy import TenancyApi, Tenant
from gpuclusters.tenancy import admission as admission_policy
from gpuclusters.tenancy import isolation
from gpuclusters.tenancy import model as tenancy_resource
from gpuclusters.tenancy.model import Quota, TenancySpec
from gpuclusters.tenancy.programs import Accounts, Place, Reach
from tests.components.recorder import record


def tenant_args(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "cluster": "test",
        "kubeconfig": "kubeconfig",
        "tenancy": TenancySpec(
            tenant="acme",
            namespace="tenant-acme",
            gpus=4,
            quota=Quota(hard={"requests.nvidia.com/pgpu": "4"}),
        ),
    }
    return {**values, **changes}


@pytest.fixture(params=[False, True], ids=["up", "preview"])
def preview(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_the_tenancy_api_binds_its_rules_to_every_tenant(preview: bool) -> None:
    args: dict[str, Any] = {
        "custom_resource_definitions": [tenancy_resource.crd()],
        "runtime_classes": ["kata-qemu-nvidia-gpu"],
        "runtime_selector": [],
        "gpu_resource": "nvidia.com/pgpu",
        "network": isolation.Network(),
        "huge_pages": False,
        "controllers": "system:serviceaccount:gpu-clusters-controllers:controllers",
    }
    engine = record(lambda: TenancyApi("tenancy", **args), preview=preview)
    bindings = engine.of(":ValidatingAdmissionPolicyBinding").values()
    assert {binding["spec"]["policyName"] for binding in bindings} == {
        admission_policy.POD_POLICY,
        admission_policy.SERVICE_POLICY,
    }
    for binding in bindings:
        assert binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] == [
            {"key": isolation.TENANT_LABEL, "operator": "Exists"}
        ]
        assert binding["spec"]["validationActions"] == ["Deny", "Audit"]
    assert len(engine.of(":CustomResourceDefinition")) == 1
    assert len(engine.of(":CiliumClusterwideNetworkPolicy")) == 1


def test_a_tenant_is_its_tenancy_and_the_proof_that_it_holds(preview: bool) -> None:
    engine = record(lambda: Tenant("acme", **tenant_args()), preview=preview)
    assert [t.rsplit(":", 1)[-1] for t in engine.types()] == ["Tenant", "TenancyPolicy"]
    (proof,) = engine.of("TenancyPolicy").values()
    assert (proof["tenant"], proof["namespace"]) == ("acme", "tenant-acme")
    assert not {"tenant", "namespace"} & set(proof["spec"]), "they are inputs of their own"
    assert proof["spec"]["quota"]["hard"] == {"requests.nvidia.com/pgpu": "4"}


def test_a_tenant_pulls_with_a_secret_of_its_own_namespace(preview: bool) -> None:
    credentials = pulumi.Output.secret('{"auths": {}}')
    engine = record(
        lambda: Tenant("acme", **tenant_args(registry_credentials=credentials)), preview=preview
    )
    (made,) = engine.of(":Secret").values()
    assert made["metadata"]["namespace"] == "tenant-acme"
    assert made["metadata"]["name"] == isolation.PULL_SECRET
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    assert made["stringData"] == {".dockerconfigjson": '{"auths": {}}'}


def test_the_kubeconfig_is_a_secret_wherever_it_goes() -> None:
    secret: list[bool] = []

    def declare() -> object:
        tenant = Tenant("acme", **tenant_args(kubeconfig=pulumi.Output.secret("kubeconfig")))
        return tenant.ready.apply(lambda _: secret.append(True))

    engine = record(declare)
    assert secret == [True]
    assert [r.name for r in engine.seen if "kubeconfig" in r.inputs] == ["acme-policy"]


def test_a_program_may_take_its_time_to_start_before_it_is_asked_whether_it_lives(
    preview: bool,
) -> None:
    def declare() -> None:
        home = system("gpu-clusters-system")
        Programs("programs", image="image", replicas=1, nodes=["hgx-01"], system=home)

    engine = record(declare, preview=preview)
    made = [*engine.of(":Deployment").values(), *engine.of(":DaemonSet").values()]
    assert len(made) == 3
    for one in made:
        (container,) = one["spec"]["template"]["spec"]["containers"]
        start, life = container["startupProbe"], container["livenessProbe"]
        assert start["httpGet"] == life["httpGet"]
        assert start["periodSeconds"] * start["failureThreshold"] == 120
        assert life["periodSeconds"] * life["failureThreshold"] == 30


def system(base: str) -> System:
    secrets: dict[str, pulumi.Input[str]] = {"ssh-private-key": "key"}
    return System("system", accounts=Accounts(base), settings="{}", secrets=secrets)


@pytest.mark.parametrize(
    ("base", "controllers", "device_plugin"),
    [
        (
            "gpu-clusters-system",
            "gpu-clusters-controllers",
            "gpu-clusters-device-plugin",
        ),
        ("caas", "caas-controllers", "caas-device-plugin"),
    ],
)
def test_each_program_has_a_namespace_and_only_the_device_plugins_lets_pods_reach_the_host(
    base: str, controllers: str, device_plugin: str, preview: bool
) -> None:
    engine = record(lambda: system(base), preview=preview)
    enforced = {
        made["metadata"]["name"]: made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for made in engine.of(":Namespace").values()
    }
    assert enforced == {
        base: "restricted",
        controllers: "restricted",
        device_plugin: "privileged",
    }
    (secret,) = engine.of(":Secret").values()
    assert secret["metadata"]["namespace"] == controllers


def test_each_programs_namespace_is_closed_to_the_network(preview: bool) -> None:
    reach = Reach(issuer=[Place("id.example.com", 443)])

    def declare() -> None:
        home = system("caas")
        ProgramNetwork("program-network", system=home, reach=reach, monitored=False)

    engine = record(declare, preview=preview)
    made = {
        one["metadata"]["namespace"]: one["spec"]
        for one in engine.of(":CiliumNetworkPolicy").values()
    }
    assert set(made) == {"caas", "caas-controllers", "caas-device-plugin"}
    for spec in made.values():
        assert spec["endpointSelector"] == {}
        assert spec["ingress"][0] == {}
    opened = [rule["toPorts"] for rule in made["caas"]["ingress"] if rule]
    assert opened == 2 * [[{"ports": [{"port": "8080", "protocol": "TCP"}]}]]
    assert made["caas-controllers"]["ingress"] == [{}]
    assert "id.example.com" in str(made["caas"])
    assert "id.example.com" not in str(made["caas-controllers"])
