"""Benches stand on the fixtures of the tests."""

pytest_plugins = ["tests.conftest"]
