"""Plain mutation testing of `src/pushlink/protocol/`: `make mutants MUTANTS=--plain`.

changes.py      the mutants of a module: one operator, condition, truth value or number changed
lines.py        which test executes which line of the protocol, traced once
trials.py       one mutant against the tests that execute its line, in a process of its own
book.py         what is known of every mutant, kept over runs in `build/plain_mutants.json`
equivalent.py   the mutants that nobody can see, each with its reason
__main__.py     the command, and the section of docs/reliability.md that it writes
"""
