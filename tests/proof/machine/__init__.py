"""A small model of what people can see of pushlink, and a machine that does the same to it and to two deployments.

Where each part is:
    model.py      the model: one record's story in a few words, no pushlink in it
    machine.py    the machine of Hypothesis: model = SQLite = PostgreSQL after everything that is done
"""
