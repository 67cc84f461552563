"""The pure core: identity, machines, gates, drift, recovery, rendering and interpretation.

Nothing here reads a clock, draws a random number, does I/O or logs. Everything is a function of its arguments or a
table; the layers above gather facts, call in here, and write down what was decided.
"""
