"""The import hook: starts watching right after `import torch` has ended, in whatever process.

The finder stands first on `sys.meta_path`, answers for torch alone, and takes itself off. The
loader stays what it is (others look at its type): `exec_module` is shadowed on that one instance.
Standard library, syntax of Python 3.8.
"""

import sys

_OLDEST_PYTHON = (3, 10)
_OLDEST_TORCH = (2, 3)


class Finder:
    def __init__(self, action):
        self._action = action
        self._busy = set()

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import _thread

        here = _thread.get_ident()
        if here in self._busy:
            return None
        self._busy.add(here)
        try:
            spec = self._behind(name, path, target)
        finally:
            self._busy.discard(here)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._shadow(spec.loader)
        return spec

    def _behind(self, name, path, target):
        """What the finders behind this one say."""
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _shadow(self, loader):
        plain = loader.exec_module

        def exec_module(module):
            if "exec_module" in vars(loader):
                del loader.exec_module  # the class's own is back
            plain(module)  # if it raises, the finder stays for the next try
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._action(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader that takes no attributes: leave it alone
            pass


def arm():
    if sys.version_info < _OLDEST_PYTHON:
        print("amplint: Python is older than 3.10, so this process is not watched", file=sys.stderr)
    elif "torch" in sys.modules:
        on_torch(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, Finder(on_torch))


def on_torch(torch):
    """Load amplint by the place of its files, and watch; never raises."""
    try:
        if _release(torch.__version__) < _OLDEST_TORCH:
            raise RuntimeError("torch is older than 2.3")
        _watch()
    except Exception as error:  # noqa: BLE001 - never the user's
        print(f"amplint: this process is not watched: {error!r}", file=sys.stderr)


def _watch():
    import importlib.util
    import json
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "options.json"), encoding="utf-8") as file:
        options = json.load(file)
    folder = options.pop("package")
    if "amplint" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "amplint", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["amplint"] = module
        spec.loader.exec_module(module)
    from amplint.live import watching

    watching.begin(watching.Options(**options))


def _release(version):
    numbers = []
    for part in str(version).split(".")[:2]:
        if not part.isdigit():
            return _OLDEST_TORCH  # a version of somebody's own
        numbers.append(int(part))
    return tuple(numbers)
