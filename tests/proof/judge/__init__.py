"""The judge: what must hold, read from the tables with SQL of its own and from the log of a remote that it also brings.

Nothing in this package imports pushlink (a test says so), so that a mistake there is not believed here.

    Judge        invariants of the rows alone, for a test that counts its remote's creates itself
    Court        the same with a remote's log beside it, for whole runs; `python -m proof.judge` is one as a process
    remote.py    a remote as a process: real sockets, scripted faults, a log that is written before any answer
    tally.py     what came of a whole run in figures
    arrows.py    the arrows between statuses, by hand
"""

from __future__ import annotations

from proof.judge.rows import Judge, judged

__all__ = ["Judge", "judged"]
