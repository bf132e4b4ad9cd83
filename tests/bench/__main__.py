"""`make bench`: figures measured on the spot, on real hosts, each beside its aim and a peer.

Needs root and Debian's packages as the real-host tests do. Words choose parts: start, many, agent, verify, copy.
"""

from __future__ import annotations

import asyncio
import sys

from tests.bench.agent import measure_agent
from tests.bench.console import measure_many, measure_start
from tests.bench.copy import measure_copy
from tests.bench.table import Row, print_rows
from tests.bench.verify import measure_verify
from tests.hosts.commands import missing_prerequisites
from tests.hosts.fleet import Fleet
from tests.hosts.story import NAMES, lay_story

PARTS = ("start", "many", "agent", "verify", "copy")


def main() -> int:
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        print(f"no such part: {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    if missing := missing_prerequisites():
        print(f"real hosts can't be booted here, for want of: {'; '.join(missing)}", file=sys.stderr)
        return 1
    rows: list[Row] = []
    with Fleet(NAMES) as fleet:
        lay_story(fleet)
        fleet.boot()
        if "start" in wanted:
            rows += measure_start(fleet)
        if "many" in wanted:
            rows += asyncio.run(measure_many(fleet))
        if "agent" in wanted:
            rows += asyncio.run(measure_agent(fleet))
        if "verify" in wanted:
            rows += asyncio.run(measure_verify(fleet))
        if "copy" in wanted:
            rows += measure_copy(fleet)
        print_rows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
