"""The store: every table and every statement of pushlink, over SQLAlchemy Core.

Each statement is one function `verb_noun(conn, items, *, now)` that takes a list and answers with a list of the same
length and order. No function here begins or commits a transaction, sends anything, or decides anything that the
protocol's tables decide. `lifecycle.py` alone writes a status, `dialect.py` alone names a dialect.
"""
