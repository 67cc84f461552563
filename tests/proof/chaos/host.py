"""A host's process: `python -m proof.chaos.host SETTINGS RECORDS TURN OF SECONDS [--faithful]`.

It writes its share of the records and saves them, some to a transaction, and each fourth of them a second time with
another name, spread over so many seconds. A transaction that failed is run again, whatever became of it, until it is
through.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import sqlalchemy as sa

from proof.chaos.site import key
from pushlink.bootstrap import Runtime
from pushlink.errors import Contended, Unavailable
from support.bench import PERSON

#: Records to a transaction, and how long a host rests after a failure, in seconds.
TOGETHER: Final = 5
REST_S: Final = 0.2

#: One record in so many is saved twice.
TWICE_ONE_IN: Final = 4


def main(settings: str, records: str, turn: str, of: str, seconds: str, *options: str) -> None:
    """Save everything."""
    runtime = Runtime.from_settings(settings)
    runtime.bind(PERSON, "Person")
    mine = [key(number, faithful=bool(options)) for number in range(int(turn), int(records), int(of))]
    groups = [mine[at : at + TOGETHER] for at in range(0, len(mine), TOGETHER)]
    pause_s = float(seconds) / max(1, len(groups))
    for before, group in zip([[], *groups], [*groups, []], strict=True):
        _save(runtime, group, "Ada")
        _save(runtime, before[::TWICE_ONE_IN], "Grace")
        time.sleep(pause_s)
    runtime.close()


def _save(runtime: Runtime, group: list[str], name: str) -> None:
    while group:
        try:
            with runtime.engine.begin() as conn:
                there = set(conn.execute(sa.select(PERSON.c.id).where(PERSON.c.id.in_(group))).scalars())
                new = [{"id": one, "name": name} for one in group if one not in there]
                if new:
                    conn.execute(PERSON.insert(), new)
                if there:
                    conn.execute(PERSON.update().where(PERSON.c.id.in_(there)).values(name=name))
                runtime.save_many(conn, [("Person", one) for one in group], user="chaos")
        except (sa.exc.SQLAlchemyError, Unavailable, Contended):
            time.sleep(REST_S)
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
