"""A file with its helpers written in does what the file does: both are run, and compared."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amplint.code.project import Project
from amplint.values.in_place import InPlace, in_place
from amplint.values.objects import Objects
from amplint.view import view_of

#: Each program defines `main(log)`; what it logs and returns has to stay the same.
PROGRAMS = {
    "results": """
        def both(a, b):
            total = a + b
            return total, a * b

        def main(log):
            x, y = both(2, 3)
            log.append((x, y))
            x, y = both(y, x)
            return x, y
        """,
    "branches that a literal decides": """
        def stepped(log, value, grow, limit=None):
            if limit is not None and grow:
                log.append("limited")
            elif not grow:
                log.append("kept")
            else:
                value = value + 1
            try:
                log.append(value)
            except ValueError:
                if grow:
                    log.append("never")
            if grow:
                value = value * 2
            return value

        def main(log):
            a = stepped(log, 3, True)
            b = stepped(log, a, False)
            c = stepped(log, b, True, limit=4)
            return a, b, c
        """,
    "swapped": """
        def turned(x, y):
            x = x + 1
            y = y * 10
            return x, y

        def main(log):
            a, b = 1, 2
            a, b = turned(b, a)
            return a, b
        """,
    "the same name twice": """
        def grown(count, step):
            count = count + step
            return count

        def main(log):
            n = 3
            n = grown(n, n)
            return n
        """,
    "names of the caller": """
        def noted(log, value):
            item = value * 2
            log.append(item)

        def main(log):
            item = 1
            noted(log, item)
            noted(log, item + 5)
            return item
        """,
    "a target that is read": """
        def moved(p):
            q = p + 1
            r = p * q
            return r

        def main(log):
            x = 4
            x = moved(x)
            return x
        """,
    "branches": """
        def chosen(flag):
            if flag:
                return 1
            else:
                if flag is None:
                    return 2

        def main(log):
            a = chosen(True)
            b = chosen(None)
            c = chosen(False)
            return a, b, c
        """,
    "in a with": """
        import contextlib

        def closed(value):
            with contextlib.nullcontext(value) as given:
                value = given * 2
                return value

        def main(log):
            found = closed(1)
            log.append(found)
            return closed(2)
        """,
    "nested": """
        def inner(log, item):
            item += 1
            log.append(item)
            return item

        def outer(log, item):
            first = inner(log, item)
            item = inner(log, first)
            return item

        def main(log):
            item = 0
            other = outer(log, item)
            return item, other
        """,
    "comprehensions": """
        def squares(items, k):
            return [x * k for x in items if x != k]

        def main(log):
            x = 2
            found = squares([1, 2, 3], x)
            return found, x
        """,
    "fields": """
        class Counter:
            def __init__(self):
                self.count = 0

            def grow(self, by, times=2):
                before = self.count
                self.count = before + by * times
                return before

            def run(self, log):
                log.append(self.grow(1))
                before = self.grow(by=self.count)
                return before, self.count

        def main(log):
            counter = Counter()
            first = counter.grow(5, times=1)
            return first, counter.run(log), counter.count
        """,
    "a field that changes": """
        class Holder:
            def __init__(self):
                self.value = 1

            def set(self, value, log):
                self.value = 10
                log.append(value)

            def run(self, log):
                self.set(self.value, log)

        def main(log):
            Holder().run(log)
        """,
    "one listener": """
        class Listener:
            def on_batch(self, log, item):
                log.append(item)
                return item + 1

        LISTENERS = [Listener()]

        def main(log):
            item = 0
            for _ in range(3):
                for listener in LISTENERS:
                    item = listener.on_batch(log, item)
            return item
        """,
    "a method of a subclass": """
        class Base:
            def run(self, log):
                return self.part(log)

            def part(self, log):
                raise NotImplementedError

        class Derived(Base):
            def part(self, log):
                log.append("derived")
                return 7

        def main(log):
            found = Derived().run(log)
            return found
        """,
    "handlers": """
        def caught(log, table, key):
            try:
                log.append(table[key])
            except KeyError as error:
                log.append(str(error))

        def main(log):
            error = "kept"
            caught(log, {}, "a")
            return error
        """,
    "closures": """
        def main(log):
            total = 1

            def show():
                log.append(total)

            show()
            total = 2
            show()
            return total
        """,
}

#: Programs that stay as they are, and why.
UNCHANGED = {
    "a return in the middle": "def f(x):\n    if x:\n        return 1\n    x += 1\n    return x",
    "a return in a loop": "def f(x):\n    for y in (x,):\n        return y",
    "a generator": "def f(x):\n    yield x",
    "a global": "def f(x):\n    global kept\n    kept = x",
    "other parameters": "def f(*x):\n    return x",
    "a decorator": "def same(f):\n    return f\n\n@same\ndef f(x):\n    return x",
    "a name that the caller hides": "def f(x):\n    return x + hidden\n\nhidden = 1",
    "a default that is built": "def f(x, y=[]):\n    return x",
}


def _written(source: str, others: dict[str, str], folder: Path) -> InPlace | None:
    for name, text in {"checked.py": source, **others}.items():
        (folder / name).write_text(text)
    project = Project(str(folder))
    module = project.add("checked.py", source, ast.parse(source), str(folder / "checked.py"))
    return in_place(module, Objects(project), lambda function: True)


def _run(tree: ast.Module) -> tuple[object, list[object]]:
    names: dict[str, object] = {}
    exec(compile(ast.fix_missing_locations(tree), "checked.py", "exec"), names)  # noqa: S102
    log: list[object] = []
    return names["main"](log), log


def _dedented(text: str) -> str:
    return "\n".join(line[8:] for line in text.splitlines())


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_happens(name: str, tmp_path: Path) -> None:
    source = _dedented(PROGRAMS[name])
    found = _written(source, {}, tmp_path)
    assert found is not None
    assert {item.qualname for item in found.functions}
    written = ast.parse(ast.unparse(found.tree))
    assert _run(written) == _run(ast.parse(source)), ast.unparse(found.tree)


def test_only_the_branch_that_is_taken_is_written(tmp_path: Path) -> None:
    source = _dedented(PROGRAMS["branches that a literal decides"])
    found = _written(source, {}, tmp_path)
    assert found is not None
    main = ast.unparse(found.tree).partition("def main")[2]
    assert (main.count("limited"), main.count("kept"), main.count("never")) == (1, 1, 2)
    assert "if" not in main


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_cannot_stand_there(name: str, tmp_path: Path) -> None:
    source = UNCHANGED[name] + "\n\ndef main(log):\n    hidden = 0\n    z = f(log)\n    return z\n"
    assert _written(source, {}, tmp_path) is None


def test_names_of_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = (
        "import math as m\nfrom math import pi\n\nSIZE = 3\n\n\ndef size():\n    return SIZE\n\n\n"
        "def area(log):\n    found = m.floor(pi) * SIZE\n    log.append(size())\n    return found\n"
    )
    source = (
        "import helper\n\npi = 1\n\n\ndef main(log):\n    got = helper.area(log)\n    return got\n"
    )
    found = _written(source, {"helper.py": helper}, tmp_path)
    assert found is not None
    monkeypatch.syspath_prepend(str(tmp_path))
    text = ast.unparse(found.tree)
    assert "area(" not in text
    assert _run(ast.parse(text)) == (9, [3])


def test_a_step_stands_in_the_file_of_its_code(tmp_path: Path) -> None:
    """And the names of that file are the names that it has."""
    home = _dedented(
        """
        import torch

        KIND = torch.float16

        def opened(tensor):
            with torch.autocast("cuda", dtype=KIND):
                return tensor @ tensor
        """
    )
    source = _dedented(
        """
        from home import opened

        def trained(optimizer, tensor):
            loss = opened(tensor)
            loss.backward()
            optimizer.step()
        """
    )
    (tmp_path / "home.py").write_text(home)
    (tmp_path / "main.py").write_text(source)
    view = view_of("main.py", source, ast.parse(source), path=str(tmp_path / "main.py")).in_place
    assert view is not None
    (region,) = (node for node in ast.walk(view.module.tree) if isinstance(node, ast.With))
    step = view.step(region.items[0].context_expr, view.module, "")
    assert (Path(step.filename).name, step.row) == ("home.py", 7)
    assert view.source_of(region.items[0].context_expr) == "torch.autocast('cuda', dtype=KIND)"


def test_places_run_in_the_order_of_the_code(tmp_path: Path) -> None:
    source = "def f(x):\n    y = x\n    z = y\n    return z\n\n\ndef main(a):\n    b = f(a)\n    return b\n"
    found = _written(source, {}, tmp_path)
    assert found is not None
    body = found.tree.body[-1].body
    rows = [(node.lineno, node.col_offset, node.end_col_offset) for node in body[:-1]]
    assert [row for row, *_ in rows] == [8, 8]
    assert rows[0][2] <= rows[1][1]
    names = [node for node in ast.walk(body[0]) if isinstance(node, ast.Name)]
    assert [found.places[node].node.lineno for node in names] == [2, 2]
    assert all(call.lineno == 8 for node in names for call in found.places[node].calls)


@pytest.mark.parametrize(
    ("rest", "left"), (("", ["main"]), ("table = {0: f}\n", ["f", "main"]), ("f(2)\n", ["main"]))
)
def test_a_function_is_left_out_that_nobody_calls_any_more(
    rest: str, left: list[str], tmp_path: Path
) -> None:
    source = f"def f(x, on=True):\n    y = x\n    return y\n\n\ndef main(a):\n    b = f(a, on=False)\n    return b\n\n\n{rest}"
    found = _written(source, {}, tmp_path)
    assert found is not None
    functions = [node for node in found.tree.body if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in functions] == left
