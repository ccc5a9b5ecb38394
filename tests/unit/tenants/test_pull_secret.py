"""A tenant's credentials of registries, as Kubernetes has them."""

import base64
import json
from typing import Any

import pytest

from gpuclusters.tenancy.model import docker_config

GIVEN = {
    "acme": {
        "registry.example.com:5000": {"username": "acme", "password": "s3:cret"},
        "docker.io": {"username": "a", "password": "b"},
    },
    "globex": {"registry.example.com:5000": {"username": "globex", "password": "theirs"}},
}


def test_a_tenant_gets_its_own_credentials_and_no_others() -> None:
    made = docker_config("acme", ("registry.example.com:5000", "docker.io"), GIVEN)
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "it has nothing for the tenant acme"),
        (["s3cret"], "it has nothing for the tenant acme"),
        ({"acme": {}}, "for the tenant acme it lacks quay.io"),
        (
            {"acme": {"quay.io": {"username": "a", "password": "s3cret"}, "nvcr.io": {}}},
            "for the tenant acme it has nvcr.io, which images.registry-auth does not",
        ),
        (
            {"acme": {"quay.io": {"password": "s3cret"}}},
            "for quay.io of the tenant acme it needs username and password, as text",
        ),
        ({"acme": {"quay.io": "s3cret"}}, "needs username and password, as text"),
        ({"acme": {"quay.io": {"username": "a", "password": 7}}}, "needs username and password"),
    ],
)
def test_credentials_that_do_not_fit_are_refused_without_a_word_of_them(
    given: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        docker_config("acme", ("quay.io",), given)
    assert "s3cret" not in str(refused.value)
