"""The court as a process that never loads pushlink: a question on each line of its input, an answer on each line.

{"url": ..., "log": ..., "records": [...] or null, "settled": true, ...}    ->  {"problems": [...], "end": "finalized"}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import sqlalchemy as sa

from proof.judge.court import Court


def main() -> None:
    """Answer until the input ends."""
    courts: dict[str, Court] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        url = asked.pop("url")
        log = Path(asked.pop("log"))
        if url not in courts:
            courts[url] = Court(sa.create_engine(url), log)
        records = asked.pop("records")
        problems = courts[url].problems(records, **asked)
        end = courts[url].end(records[0]) if records else ""
        loaded = [name for name in sys.modules if name.partition(".")[0] == "pushlink"]
        problems += [f"the judge has loaded {name}" for name in loaded]
        sys.stdout.write(json.dumps({"problems": problems, "end": end}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
