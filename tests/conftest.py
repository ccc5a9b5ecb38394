"""What all tests share."""

pytest_plugins = ["tests.fixtures.control_plane", "tests.fixtures.hosts"]
