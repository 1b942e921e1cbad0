"""`amplint check` that notes what each file costs: `python timed_check.py NOTES ARGUMENTS…`.

NOTES gets a line for each file that is inspected: its name when it begins, the processor seconds
when it ends. So a run that is killed tells where it was. With several jobs there are no notes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO

sys.path[0] = str(Path(__file__).resolve().parent.parent)


def main() -> None:
    """Run amplint's command line; it ends the process."""
    from amplint import checker
    from amplint.cli.main import main as command_line

    inspect = checker.inspect
    with Path(sys.argv[1]).open("w", encoding="utf-8") as notes:

        def noted(task: checker.Task) -> checker.FileResult:
            return _noted(notes, task)

        def _noted(notes: TextIO, task: checker.Task) -> checker.FileResult:
            print(task.source.filename, file=notes, flush=True)
            started = time.process_time()
            result = inspect(task)
            print(time.process_time() - started, file=notes, flush=True)
            return result

        checker.inspect = noted
        sys.argv[:] = ["amplint", "check", *sys.argv[2:]]
        command_line()


if __name__ == "__main__":
    main()
