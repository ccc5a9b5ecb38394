"""By which names pods ask for the images of the lab."""

from __future__ import annotations

REGISTRY = "lab.local"
"""Of all images that the lab makes for itself: what is not among them is a mistake."""
PAUSE = "lab.local/pause:1"
"""What holds a pod's namespaces."""
BUSYBOX = "lab.local/busybox:1"
"""A shell and small tools, for tests and for looking around."""
PYTHON = "lab.local/python:1"
"""The interpreter and this project's code, for pods that bring a Python program of ours."""
STAND_IN = "lab.local/stand-in:1"
"""What the registry gives for a name that it does not know."""
