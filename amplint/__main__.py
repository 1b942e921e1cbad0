"""`python -m amplint`."""

from __future__ import annotations

from amplint.cli.main import main

if __name__ == "__main__":
    main()
