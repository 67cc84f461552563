"""What people ask of a deployment: one set of operations behind the command line, the HTTP API and the console.

    reasons.py   every stable code in a sentence, with the next step
    reads.py     links, attempts, history and counts, a page at a time
    explain.py   why a record is where it is, and what may be done about it
    verbs.py     the verbs that may follow, with the command to type
    packs.py     check, apply and list packs
    health.py    the checks of `doctor`

They take an open connection and plain values and hand out frozen dataclasses; they speak no SQL and print nothing.
"""
