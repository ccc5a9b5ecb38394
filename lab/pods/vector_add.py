"""NVIDIA's sample vectorAdd in a pod of a rootless node: two vectors, added by this machine's processor.

Words after NVIDIA/cuda-samples, `vectorAdd.cu`. Without a GPU that the container was given it fails as that.
"""

import os
import random
import sys
from pathlib import Path

from lab.pods import rootless
from lab.pods.names import FOLDER_VARIABLE, NODE_VARIABLE, VISIBLE
from lab.pods.rootless import InNode

ELEMENTS = 50_000
_TOLERANCE = 1e-5


def main() -> int:
    node = rootless.read(Path(os.environ[FOLDER_VARIABLE])).get(os.environ[NODE_VARIABLE], InNode())
    given = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
    print(f"[Vector addition of {ELEMENTS} elements, simulated on this machine's processor]")
    if not given or not node.injects or not set(given) <= set(node.gpus):
        print(
            "Failed to allocate device vector A (error code no CUDA-capable device is detected)!",
            file=sys.stderr,
        )
        return 1
    numbers = random.Random(1)  # noqa: S311
    left = [numbers.random() for _ in range(ELEMENTS)]
    right = [numbers.random() for _ in range(ELEMENTS)]
    total = list(map(float.__add__, left, right))
    for place, value in enumerate(total):
        if abs(left[place] + right[place] - value) > _TOLERANCE:
            print(f"Result verification failed at element {place}!", file=sys.stderr)
            return 1
    print("Test PASSED")
    print("Done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
