"""Flows: one straight-line generator per operation, and the drivers that run them.

A flow yields `Tx` and `Send` and nothing else; every `yield` is a point where the process may die. Flows decide by
calling the pure protocol, write through steps that end in store functions, and never see a transaction or a socket.
`reserve.py` is the one part that is no flow: it runs inside the host's own transaction.
"""
