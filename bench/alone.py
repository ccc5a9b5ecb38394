"""The SDK alone: registers as many resources as the argument says, under mocks.

Says how many seconds that took, and how many of a processor.
"""

from __future__ import annotations

import sys
import time

import pulumi
from things import Nothing  # type: ignore[import-not-found]


class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, object]]:
        return args.name, dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, object], None]:
        return {}, None


def declare() -> None:
    for number in range(int(sys.argv[1])):
        Nothing(f"thing-{number}", number)


pulumi.runtime.set_mocks(Mocks(), preview=False)
begin, used = time.perf_counter(), time.process_time()
pulumi.runtime.test(declare)()
print(time.perf_counter() - begin, time.process_time() - used)
