"""As many resources as the configuration says."""

import pulumi
from things import Nothing

for number in range(pulumi.Config().require_int("count")):
    Nothing(f"thing-{number}", number)
