"""Images without a registry: written as archives that containerd imports, the same bytes every time."""

from lab.images.archive import Image
from lab.images.names import BUSYBOX, PAUSE, PYTHON, STAND_IN
from lab.images.programs import caas
from lab.images.python_image import python
from lab.images.small import basic
from lab.images.stand_in_image import stand_in

__all__ = ["BUSYBOX", "PAUSE", "PYTHON", "STAND_IN", "Image", "basic", "caas", "python", "stand_in"]
