"""amplint: the linter for misuse of PyTorch automatic mixed precision (AMP)."""

from __future__ import annotations

import os.path

__version__ = "0.1.0"

# A source checkout keeps rules/ beside this package; a wheel ships it inside.
# setuptools cannot map a top-level folder to a sub-package in every install mode
# (editable, wheel, "run from the checkout"), so the checkout extends __path__.
_checkout = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if os.path.isfile(os.path.join(_checkout, "pyproject.toml")) and os.path.isfile(
    os.path.join(_checkout, "rules", "__init__.py")
):
    __path__.append(_checkout)
