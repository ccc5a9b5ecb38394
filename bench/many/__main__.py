"""As many resources as the configuration says: `count` that do nothing, `slow` that take a second."""

import pulumi
from things import Nothing, Slow

config = pulumi.Config()
for number in range(config.require_int("count")):
    Nothing(f"thing-{number}", number)
for number in range(config.get_int("slow") or 0):
    Slow(f"slow-{number}")
