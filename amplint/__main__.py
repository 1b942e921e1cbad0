"""`python -m amplint`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Python puts the working directory first on sys.path; a `difflib.py` in the checked
    # tree would be imported, that is executed.
    if sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]

    from amplint.cli.main import main

    main()
