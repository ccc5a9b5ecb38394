"""What tests of components share."""

import pytest


@pytest.fixture(params=[False, True], ids=["up", "preview"])
def preview(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
