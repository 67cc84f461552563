"""The code of the release before this one, kept beside the tests: a shallow clone has no history to take it from.

    python -m proof.upgrade.releases COMMIT     keep that commit's code in place of what is kept

Whoever adds a revision to the schema keeps the last commit before it; a test says so when it was forgotten.
"""

from __future__ import annotations

import lzma
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).with_name("releases")
_REVISION: Final = re.compile(r"src/pushlink/store/migrations/versions/(\d{4})_\w+\.py")


def previous() -> Path:
    """The archive of the release before this one."""
    [archive] = KEPT.glob("*.tar.xz")
    return archive


def revision_of(archive: Path) -> str:
    """The newest revision of the schema that the code in an archive knows."""
    with tarfile.open(archive) as tar:
        return max(found[1] for name in tar.getnames() if (found := _REVISION.fullmatch(name)))


def unpack(archive: Path, home: Path) -> Path:
    """Unpack it; the directory that Python imports it from."""
    with tarfile.open(archive) as tar:
        tar.extractall(home, filter="data")
    return home / "src"


def keep(commit: str) -> Path:
    """Take a commit's code out of the history, in place of what was kept."""
    made = subprocess.run(
        ["git", "archive", commit, "src/pushlink"], cwd=KEPT.parents[3], capture_output=True, check=True
    )
    KEPT.mkdir(exist_ok=True)
    for old in KEPT.glob("*.tar.xz"):
        old.unlink()
    new = KEPT / "new.tar.xz"
    new.write_bytes(lzma.compress(made.stdout, preset=9 | lzma.PRESET_EXTREME))
    return new.rename(KEPT / f"{revision_of(new)}.tar.xz")


if __name__ == "__main__":
    sys.stdout.write(f"{keep(sys.argv[1])}\n")
