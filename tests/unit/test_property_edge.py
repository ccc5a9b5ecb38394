"""Property bags: numbers, unknowns at any depth, defaults, secrets in messages."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi.output import UNKNOWN as SDK_UNKNOWN
from pulumi.output import Unknown

from gpuclusters.cdi.resource import CdiSpecProvider
from gpuclusters.core import errors
from gpuclusters.fabric.resource import FabricPartitionsProvider
from gpuclusters.host.connect import find_credentials
from gpuclusters.host.model import HostFileSpec, parse_host_key
from gpuclusters.host.resource import HostFileProvider
from gpuclusters.providers import properties
from gpuclusters.providers.properties import StepError, explained, scrubbed
from gpuclusters.service_vm.resource import ServiceVmProvider
from gpuclusters.tenancy.resource import TenancyPolicyProvider
from tests.fixtures.tables import beside
from tests.unit.config.documents import places

CASES = beside(__file__, "property_bags.yaml")
KEY = CASES["key"]
CONNECTION = CASES["connection"]
PROVIDERS = (
    CdiSpecProvider,
    FabricPartitionsProvider,
    HostFileProvider,
    ServiceVmProvider,
    TenancyPolicyProvider,
)
VALID: dict[type, dict[str, Any]] = {one: CASES["valid"][one.__name__] for one in PROVIDERS}


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = replaced(value[path[0]], path[1:], new)
    return copied


def unknown() -> Unknown:
    return SDK_UNKNOWN if isinstance(SDK_UNKNOWN, Unknown) else Unknown()


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda p: p.__name__)
def test_valid_inputs_with_whole_floats_have_no_faults_and_no_difference(provider: type) -> None:
    inputs = VALID[provider]
    assert provider().check({}, inputs).failures == []
    assert provider().diff("id", inputs, properties.plain(inputs)).changes is False


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda p: p.__name__)
def test_an_unknown_at_any_place_is_accepted_and_is_a_change_without_replacement(
    provider: type,
) -> None:
    for path, _ in list(places(VALID[provider]))[1:]:
        inputs = replaced(VALID[provider], path, unknown())
        assert provider().check({}, inputs).failures == [], path
        difference = provider().diff("id", VALID[provider], inputs)
        assert difference.changes is True, path
        assert difference.replaces == [], path


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.builds(unknown),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_check_and_diff_never_raise_whatever_is_given(data: st.DataObject) -> None:
    provider = data.draw(st.sampled_from(PROVIDERS))
    path = data.draw(st.sampled_from([path for path, _ in places(VALID[provider]) if path]))
    inputs = replaced(VALID[provider], path, data.draw(JUNK))
    for failure in provider().check({}, inputs).failures:
        assert failure.reason
    provider().diff("id", VALID[provider], inputs)
    provider().diff("id", inputs, VALID[provider])


def test_a_left_out_default_is_no_difference_but_another_value_is() -> None:
    olds = VALID[HostFileProvider]
    full = olds | {"mode": "0644", "owner": "root:root", "adopt": False}
    assert properties.changed(HostFileSpec, olds, full) == []
    assert properties.changed(HostFileSpec, olds, full | {"mode": "0600"}) == ["mode"]
    moved = olds | {"connection": {**CONNECTION, "port": 23}}
    assert properties.changed(HostFileSpec, olds, moved) == ["connection.port"]


@pytest.mark.parametrize(("name", "outputs", "changes"), CASES["outputs"])
def test_outputs_that_tell_of_drift_are_a_change(
    name: str, outputs: dict[str, Any], changes: bool
) -> None:
    (provider,) = (one for one in PROVIDERS if one.__name__ == name)
    inputs = VALID[provider]
    assert provider().diff("id", inputs | outputs, inputs).changes is changes


def test_secrets_are_taken_out_whole_by_line_and_by_value() -> None:
    kubeconfig = "server: https://192.0.2.9:6443\ntoken: abcdefghijklmnop\n"
    text = f"could not parse {kubeconfig!s} nor abcdefghijklmnop at https://192.0.2.9:6443"
    shown = scrubbed(text, [kubeconfig])
    assert "abcdefghijklmnop" not in shown
    assert shown.endswith("[secret] at https://192.0.2.9:6443")


def test_a_defect_is_called_one_and_its_traceback_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(StepError, match=r"a defect.*KeyError") as failed:  # noqa: SIM117
        with explained("create X", ["very-secret-text"]):
            raise KeyError("very-secret-text")
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "very-secret-text" not in said + str(failed.value)


FAMILY = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Exception)]


@pytest.mark.parametrize("kind", FAMILY, ids=lambda c: c.__name__)
def test_every_error_survives_pickling_and_says_all_four_things(kind: type[Exception]) -> None:
    error = kind("hgx-01 (192.0.2.1:22)", "write /etc/x", "exit status 1", "free some space")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert str(error) == (
        "hgx-01 (192.0.2.1:22): could not write /etc/x: exit status 1; free some space"
    )


def test_the_stack_secret_comes_before_the_file_and_the_file_before_the_agent(
    tmp_path: Any,
) -> None:
    file = tmp_path / "key"
    file.write_text("from file")
    environment = {"GPU_CLUSTERS_SSH_KEY_FILE": str(file), "SSH_AUTH_SOCK": "/run/agent"}
    assert find_credentials("from stack", environment).private_key == "from stack"
    assert find_credentials(None, environment).private_key == "from file"
    assert find_credentials("", {"SSH_AUTH_SOCK": "/run/agent"}).agent_path == "/run/agent"
    with pytest.raises(errors.NoCredentialsError, match="gpu-clusters:ssh-private-key"):
        find_credentials(None, {})
    with pytest.raises(errors.NoCredentialsError, match="No such file"):
        find_credentials(None, {"GPU_CLUSTERS_SSH_KEY_FILE": str(tmp_path / "none")})


def test_a_key_is_never_shown_by_its_holder() -> None:
    assert "from stack" not in repr(find_credentials("from stack", {}))
    with pytest.raises(errors.NoCredentialsError) as failed:
        find_credentials("from stack", {}).keys()
    assert "from stack" not in str(failed.value)


@pytest.mark.parametrize(
    "line",
    ["", "ssh-ed25519", "ssh-dss AAAA", "ssh-ed25519 !!!", "ssh-rsa " + KEY.split()[1]],
)
def test_what_is_no_host_key_is_refused_with_the_way_to_get_one(line: str) -> None:
    with pytest.raises(ValueError, match="ssh-keyscan"):
        parse_host_key(line)


def test_the_comment_of_a_host_key_is_dropped() -> None:
    assert parse_host_key(KEY + " root@hgx-01\n") == KEY
