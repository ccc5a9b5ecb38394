"""By which names pods ask for the images of the lab."""

from __future__ import annotations

PAUSE = "lab.local/pause:1"
"""What holds a pod's namespaces."""
BUSYBOX = "lab.local/busybox:1"
"""A shell and small tools, for tests and for looking around."""
