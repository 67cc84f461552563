"""The closing rules, each switched off from outside, and the test that notices.

means.py      how something is replaced, and `MUTANTS`, the table that the modules below fill
creates.py    rules of creates and of claims
updates.py    rules of updates
others.py     lanes, records that wait for others, groups, manifests
plugin.py     a plugin of pytest: takes the mutant that `PUSHLINK_MUTANT` names, and says why its test failed
"""

from __future__ import annotations

import pushlink.bootstrap
import pushlink.worker  # noqa: F401 - every module that may hold a name that is replaced is there
from proof.mutation import creates, others, updates  # noqa: F401 - they fill the table
from proof.mutation.means import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]
