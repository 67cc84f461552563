"""Upgrades: the release before this one and this one, side by side on one database that is upgraded under their load.

releases/       the code of the release before this one, as it was; its name is the revision that it knows
releases.py     how that code is kept, and unpacked
host.py         a process that saves; it runs with the code of either release
fleet.py        a deployment whose processes are of two releases
__main__.py     `make upgrade`
"""
