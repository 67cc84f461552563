"""A bulk import: many records and their pushes, a chunk a transaction, with progress.

python examples/bulk_import.py --rows 5000
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from quickstart import PACK, Base, Contact
from rich.progress import Progress
from sqlalchemy.orm import Session

import pushlink
from pushlink.testing.drain import open_runtime
from pushlink.testing.remote import FaultyRemote


# region bulk
def import_names(pl: pushlink.Runtime, names: Iterable[str], *, chunk: int = 1_000) -> Iterator[Counter[str]]:
    """Insert and save a chunk at a time; each is committed whole or not at all. Yields what its saves came to."""
    waiting = iter(names)
    while batch := list(itertools.islice(waiting, chunk)):
        with Session(pl.engine) as session, session.begin():
            contacts = [Contact(name=name) for name in batch]
            session.add_all(contacts)
            outcomes = pl.save_many(session, contacts, user="importer")
        yield Counter(type(one).__name__ for found in outcomes for one in found)


# endregion


def main() -> None:
    """Import into a deployment of this run's own, and push to a remote on this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--chunk", type=int, default=1_000)
    asked = parser.parse_args()
    names = (f"contact {number}" for number in range(1, asked.rows + 1))
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, FaultyRemote() as remote, Progress(transient=True) as progress:
        pack = PACK.replace("REMOTE", remote.base_url)
        pl = open_runtime(Path(folder), pack=pack, bind={"Contact": Contact}, metadata=Base.metadata)
        task = progress.add_task("importing", total=asked.rows)
        for counts in import_names(pl, names, chunk=asked.chunk):
            total += counts
            progress.advance(task, counts.total())
        progress.update(task, description="pushing", completed=0)
        pl.drain()  # in production: `pushlink worker`, in a process of its own, at work since the first commit
        pl.close()
        print(", ".join(f"{count} {name}" for name, count in sorted(total.items())))
        print(f"the remote holds {len(remote.records)} records after {remote.creates} creates")


if __name__ == "__main__":
    main()
