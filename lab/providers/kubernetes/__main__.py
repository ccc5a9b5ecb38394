"""`python -m lab.providers.kubernetes ENGINE_ADDRESS`: the stand-in as a plugin process."""

import sys

from lab.providers.kubernetes.provider import KubernetesProvider
from lab.providers.process import main

sys.exit(main(KubernetesProvider, sys.argv[1:]))
