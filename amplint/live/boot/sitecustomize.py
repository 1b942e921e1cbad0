"""Found first on PYTHONPATH by every Python that a watched command starts.

It arms the import hook beside it, and then runs the `sitecustomize` that would have run without
amplint. Standard library, syntax of Python 3.8: the interpreter is the user's. It never raises.
"""

import sys


def _arm():
    import amplint_boot  # beside this file

    amplint_boot.arm()


def _next_sitecustomize():
    """Run the user's own, found as Python would without this folder."""
    import os
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # what the user's code expects to find there
    try:
        spec.loader.exec_module(module)
    except ImportError as error:  # as `site` does: only the missing module itself is silent
        if error.name != "sitecustomize":
            raise


try:
    _arm()
except Exception as error:  # noqa: BLE001 - never the user's
    print("amplint: this process is not watched:", error, file=sys.stderr)
_next_sitecustomize()
