"""The rules of gpuclusters/policy as a Pulumi policy pack; docs/policy says how it is used."""

import sys
from pathlib import Path

# The rules lie beside this folder, and are not installed in its environment.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pack import serve

serve()
