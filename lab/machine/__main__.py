"""`python -m lab.machine`: make the image of a real machine if there is none, and print where it is."""

import sys

from lab.machine.image import image
from lab.machine.qemu import MachineError, programs

if __name__ == "__main__":
    try:
        print(image(programs()).folder)
    except MachineError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
