"""A tenant's credentials of registries, as Kubernetes has them."""

import base64
import json
from typing import Any

import pytest

from gpuclusters.tenancy.model import docker_config
from tests.fixtures.tables import beside

CASES = beside(__file__, "pull_secrets.yaml")


def test_a_tenant_gets_its_own_credentials_and_no_others() -> None:
    made = docker_config("acme", ("registry.example.com:5000", "docker.io"), CASES["given"])
    assert json.loads(made) == {
        "auths": {
            "registry.example.com:5000": {
                "username": "acme",
                "password": "s3:cret",
                "auth": base64.b64encode(b"acme:s3:cret").decode(),
            },
            "https://index.docker.io/v1/": {"username": "a", "password": "b", "auth": "YTpi"},
        }
    }
    assert "theirs" not in made


@pytest.mark.parametrize(("given", "said"), CASES["refused"])
def test_credentials_that_do_not_fit_are_refused_without_a_word_of_them(
    given: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        docker_config("acme", ("quay.io",), given)
    assert "s3cret" not in str(refused.value)
