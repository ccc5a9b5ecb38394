"""Images without a registry: written as archives that containerd imports, the same bytes every time."""

from lab.images.archive import Image
from lab.images.names import BUSYBOX, PAUSE
from lab.images.programs import caas
from lab.images.small import basic

__all__ = ["BUSYBOX", "PAUSE", "Image", "basic", "caas"]
