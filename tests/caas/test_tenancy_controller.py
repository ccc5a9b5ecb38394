"""The tenancy controller on a real API server."""

from __future__ import annotations

import pytest

from tests.fixtures.tenancies import Operator, Tenants

pytestmark = pytest.mark.lab


def test_a_tenancy_becomes_ready_when_everything_is_enforced(
    tenants: Tenants, operator: Operator
) -> None:
    name = tenants.make()
    tenants.ready(name)
