"""Whatever the input, checking it ends in a result: never in a crash or a traceback."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import hypothesmith
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amplint.checker import check_source
from amplint.config import Settings
from amplint.errors import UnreadableFile
from amplint.inspection import FileResult
from amplint.source.parsing import MAX_NESTING, TOO_DEEP, concrete_syntax, parse
from amplint.source.positions import split_lines
from amplint.source.reading import SourceFile
from tests.budget import budget

ROOT = Path(__file__).resolve().parent.parent
EVERY_RULE = Settings(select=("ALL",))
TRAINING = """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda"):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def _nested_tries(depth: int) -> str:
    opened = [" " * level + "try:" for level in range(depth)]
    closed = [" " * level + "except E: pass" for level in reversed(range(depth))]
    return "\n".join([*opened, " " * depth + "pass", *closed])


#: How to nest: each makes a program of a depth.
SHAPES = {
    "open parentheses": lambda n: "(" * n,
    "parentheses": lambda n: "x = " + "(" * n + ")" * n,
    "brackets": lambda n: "x = " + "[" * n + "]" * n,
    "braces": lambda n: "x = " + "{" * n + "}" * n,
    "calls": lambda n: "f(" * n + ")" * n,
    "calls of calls": lambda n: "f" + "()" * n,
    "subscripts": lambda n: "x" + "[0]" * n,
    "sum": lambda n: "x = " + "+".join(["1"] * n),
    "power": lambda n: "x = " + "**".join(["1"] * n),
    "comparison": lambda n: "x = " + "<".join(["1"] * n),
    "and": lambda n: "x = " + " and ".join(["1"] * n),
    "minus": lambda n: "x = " + "-" * n + "1",
    "not": lambda n: "x = " + "not " * n + "1",
    "attributes": lambda n: "x" + ".x" * n,
    "scaler attributes": lambda n: "scaler" + ".scaler" * n + ".step(optimizer)",
    "ternary": lambda n: "x = " + "1 if a else " * n + "1",
    "lambda": lambda n: "x = " + "lambda: " * n + "1",
    "f-string": lambda n: "x = " + "f'{" * n + "1" + "}'" * n,
    "elif": lambda n: "if a:\n pass\n" + "elif a:\n pass\n" * n,
    "if": lambda n: "\n".join(" " * i + "if a:" for i in range(min(n, 1000))) + " pass",
    "def": lambda n: "\n".join(" " * i + "def f():" for i in range(min(n, 99))) + " pass",
    "statements": lambda n: "scaler\n" * n,
    "one line": lambda n: "scaler;" * n,
    "assignments": lambda n: "x = " * n + "1",
    "strings": lambda n: "x = (" + "'a'\n" * n + ")",
    "arguments": lambda n: "f(" + "x, " * n + ")",
    "with": lambda n: "with " + ", ".join(["a"] * n) + ": pass",
    "loops": lambda n: "\n".join(" " * i + "for x in y:" for i in range(min(n, 19))) + " pass",
    "tries": lambda n: _nested_tries(min(n, 19)),
    "match": lambda n: "match x:\n case " + "[" * n + "]" * n + ": pass",
    "annotation": lambda n: "x: " + "a[" * n + "b" + "]" * n,
    "decorators": lambda n: "@a\n" * n + "def f(): pass",
    "comments": lambda n: "# noqa: AMP110 " * n,
    "directive": lambda n: "x  # amplint: ignore[" + "[" * n,
    "backslashes": lambda n: "x = \\\n" * n + "1",
    "empty lines": lambda n: "\n" * n,
}

#: Where each link asks what all before it are: refused from 200 links on.
CHAINS = {"calls of calls", "subscripts", "attributes", "scaler attributes"}

_CHECK_ALL = """
import json, sys
from amplint.checker import check_source
from amplint.config import Settings
found = {}
for name, text in json.load(sys.stdin).items():
    result = check_source(name, text.encode(), Settings(select=("ALL",)))
    found[name] = [error.message for error in result.errors]
print(json.dumps(found))
"""


@pytest.mark.parametrize("depth", [150, 1_000, 20_000])
def test_deep_nesting(depth: int) -> None:
    """In a process of its own, because a native crash cannot be caught."""
    programs = {f"{name}.py": TRAINING + shape(depth) + "\n" for name, shape in SHAPES.items()}
    done = subprocess.run(
        [sys.executable, "-c", _CHECK_ALL],
        input=json.dumps(programs),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    messages = json.loads(done.stdout)
    assert set(messages) == set(programs)
    for errors in messages.values():
        assert not [message for message in errors if "internal error" in message]
    assert messages["statements.py"] == messages["empty lines.py"] == []
    refused = {name for name, errors in messages.items() if TOO_DEEP in errors}
    if depth <= 1_000 and sys.platform == "linux":  # elsewhere the stack does not grow
        compiled = {name for name in refused if _compiles(programs[name])}
        assert compiled <= {f"{chain}.py" for chain in CHAINS}
    # From Python 3.12 on, calls through C have a limit that nobody can raise.
    assert ("sum.py" in refused) == (depth > (5_000 if sys.version_info < (3, 12) else 1_000))


@pytest.mark.skipif(sys.platform != "linux", reason="the stack grows on Linux only")
@pytest.mark.parametrize("shape", ["sum", "elif", "ternary"])
def test_a_mistake_beside_900_terms_is_found(shape: str) -> None:
    text = TRAINING + "\ndef f(x, a):\n    " + SHAPES[shape](900).replace("\n", "\n    ") + "\n"
    text += TRAINING.replace("    scaler.step(optimizer)\n", "    scaler.step(optimizer)\n" * 2)
    result = check_source("a.py", text.encode(), EVERY_RULE)
    assert (result.errors, "AMP104" in {finding.code for finding in result.findings}) == ((), True)


def _compiles(text: str) -> bool:
    try:
        compile(text, "a.py", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def assert_sane(result: FileResult, text: str) -> None:
    """No internal error, and every position lies inside the file."""
    assert not [error for error in result.errors if "internal error" in error.message]
    lines = split_lines(text)

    def assert_inside(row: int, column: int) -> None:
        assert 1 <= row <= len(lines)
        assert 1 <= column <= len(lines[row - 1]) + 1

    for finding in result.findings:
        for position in (finding.span.start, finding.span.end):
            assert_inside(position.row, position.column)
        for step in finding.path:
            assert step.filename == result.filename
            assert_inside(step.row, step.column)
    for error in result.errors:
        assert_inside(error.row, error.column)


# -- generated and mutated programs, about 500: deselect them with -k "not large" ---------------

#: Every second fixture, which is a sample; `scripts/fuzz.py` breaks as many programs as one likes.
FIXTURES = sorted((ROOT / "fixtures").rglob("*.py"))[::2]
MUTANTS = budget(150, 475)


@given(hypothesmith.from_node())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_large_any_program(source: str) -> None:
    assert_sane(check_source("a.py", source.encode(), EVERY_RULE), source)


@pytest.mark.parametrize("part", range(10))
def test_large_mutants_of_the_fixtures(part: int) -> None:
    """Statements deleted, doubled and moved, all over the fixtures: whatever is left runs."""
    for number in range(part, MUTANTS, 10):
        chance = random.Random(number)
        tree = ast.parse(FIXTURES[number % len(FIXTURES)].read_text("utf-8"))
        for _ in range(chance.randint(1, 4)):
            _mutate(tree, chance)
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        result = check_source("a.py", text.encode(), EVERY_RULE)
        assert_sane(result, text)
        # A mutant such as a `return` outside of a function is still a syntax tree.
        assert not result.errors or not _parses(text)


def _mutate(tree: ast.Module, chance: random.Random) -> None:
    """Delete, double or move one statement, in place; a block never becomes empty."""
    blocks = [
        block
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, name, None), list) and block
    ]
    source, target = chance.choice(blocks), chance.choice(blocks)
    index = chance.randrange(len(source))
    statement = source[index]
    kind = chance.choice(("delete", "double", "swap", "move"))
    if kind == "double":
        source.insert(index, statement)
    elif kind == "swap":
        other = chance.randrange(len(source))
        source[index], source[other] = source[other], statement
    elif kind == "delete":
        source[index : index + 1] = [] if len(source) > 1 else [ast.Pass()]
    elif all(block is not target for block in _blocks_in(statement)):
        source[index : index + 1] = [] if len(source) > 1 else [ast.Pass()]
        target.insert(chance.randrange(len(target) + 1), statement)


def _blocks_in(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks inside a statement: moving it there would make a cycle."""
    found = [
        getattr(node, name, None)
        for node in ast.walk(statement)
        for name in ("body", "orelse", "finalbody")
    ]
    return [block for block in found if isinstance(block, list)]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


VOCABULARY = (
    "scaler optimizer loss model .step( .update() .unscale_( .scale( .backward() ) ( , : = with "
    "autocast if else: for in while try: except: def return yield await async lambda * ** @ \n "
    "\n\t \n\t\t \t # noqa:AMP110 torch.amp. GradScaler() None True 'x' \" ''' \\ \r \f é 😀 \0 _ "
    "class : self. [ ] { } not and is == ; import from as global del match case f'{"
)
WORDS = st.sampled_from(VOCABULARY.split(" "))


@given(st.lists(WORDS, max_size=40).map(" ".join))
@settings(max_examples=200, deadline=None)
def test_any_words(text: str) -> None:
    assert_sane(check_source("a.py", text.encode(), EVERY_RULE), text)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_mutilation_of_a_training_loop(data: st.DataObject) -> None:
    lines = TRAINING.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(lines) - 1))
        lines[index : index + 1] = data.draw(
            st.sampled_from(
                [
                    [],
                    [lines[index]] * 2,
                    [lines[index].strip() + "\n"],
                    ["    " + lines[index]],
                    [lines[index][::2]],
                    ["if x:\n"],
                ]
            )
        ) or [""]
    text = "".join(lines)
    assert_sane(check_source("a.py", text.encode(), EVERY_RULE), text)


@given(st.binary(max_size=200))
@example(b"\xff")
@example(b"# coding: utf-7\n+AAA-")
@example(b"# coding: unicode_escape\n\\ud800")
@settings(max_examples=200, deadline=None)
def test_any_bytes(data: bytes) -> None:
    result = check_source("a.py", data, EVERY_RULE)
    assert not [error for error in result.errors if "internal error" in error.message]
    assert all(error.row >= 1 and error.column >= 1 for error in result.errors)


# -- snippets for edits ----------------------------------------------------------------


@pytest.mark.parametrize("source", ["scaler.step(optimizer)  # why\n", "x=( 1,\n 2 )\n", "\n"])
def test_concrete_syntax_keeps_every_character(source: str) -> None:
    assert concrete_syntax(source).code == source


@pytest.mark.parametrize("source", ["x = (\n", "def f(:\n", "x = \0\n"])
def test_concrete_syntax_of_no_python(source: str) -> None:
    with pytest.raises(UnreadableFile, match="cannot be parsed"):
        concrete_syntax(source)


@pytest.mark.parametrize("name", ["calls of calls", "sum", "attributes", "elif", "calls", "not"])
@pytest.mark.parametrize("depth", [MAX_NESTING + 5, 20_000])
def test_concrete_syntax_of_a_deep_snippet(name: str, depth: int) -> None:
    with pytest.raises(UnreadableFile):
        concrete_syntax(SHAPES[name](depth) + "\n")


def test_parse_gives_the_tree() -> None:
    tree = parse(SourceFile("a.py", "x = 1\n"))
    assert ast.dump(tree) == ast.dump(ast.parse("x = 1\n"))


#: Found by scripts/fuzz.py.
FOUND = {
    "a starred argument of step": (
        "def fit(net, loader, optimizers):\n    scaler = torch.amp.GradScaler('cuda')\n"
        "    for x in loader:\n        scaler.scale(net(x)).backward()\n"
        "        scaler.step(*optimizers)\n        scaler.update(*optimizers)\n"
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_a_rule_could_not_read(name: str) -> None:
    text = "import torch\n" + FOUND[name]
    assert_sane(check_source("a.py", text.encode(), EVERY_RULE), text)
