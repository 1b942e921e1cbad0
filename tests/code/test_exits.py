"""Which statements end the program: Python says, by not going on behind them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from amplint.code.layout import EXITS
from amplint.code.module import build_module

#: (name, program up to the statement in question, that statement, whether it ends the program)
PROGRAMS = (
    ("sys", "import sys", "sys.exit(1)", True),
    ("the function alone", "from sys import exit", "exit('stop')", True),
    ("another name", "from sys import exit as leave", "leave()", True),
    ("another name of the module", "import sys as system", "system.exit()", True),
    ("os", "import os", "os._exit(0)", True),
    ("abort", "import os", "os.abort()", True),
    ("a module from a star", "from site import *", "sys.exit(1)", True),
    ("builtin", "", "exit(2)", True),
    ("the other builtin", "", "quit()", True),
    ("a function of the file", "def exit(code):\n    return code", "exit(1)", False),
    (
        "a method",
        "class Gate:\n    def exit(self):\n        return 1\ngate = Gate()",
        "gate.exit()",
        False,
    ),
    ("a variable", "exit = print", "exit(1)", False),
    ("another function of the module", "import sys", "sys.getsizeof(1)", False),
    ("not called", "import sys", "sys.exit", False),
)


@pytest.mark.parametrize(
    ("before", "statement", "ends"), [row[1:] for row in PROGRAMS], ids=[r[0] for r in PROGRAMS]
)
def test_a_statement_ends_the_program_as_in_python(
    before: str, statement: str, ends: bool, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"{before}\n{statement}\nprint('went on')\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ("went on" not in ran.stdout) is ends
    source = script.read_text()
    module = build_module("program.py", source, ast.parse(source))
    known = module.tree.body[-2]
    assert isinstance(known, EXITS) is ends
    assert ast.get_source_segment(source, known) == statement


@pytest.mark.parametrize(
    "block",
    [
        "def run():\n    {}\n",
        "if True:\n    {}\n",
        "if True:\n    pass\nelse:\n    {}\n",
        "for item in ():\n    pass\nelse:\n    {}\n",
        "try:\n    pass\nexcept ValueError:\n    {}\n",
        "try:\n    pass\nfinally:\n    {}\n",
        "match 1:\n    case 1:\n        {}\n",
        "class Run:\n    def end(self):\n        {}\n",
    ],
)
def test_in_every_block(block: str) -> None:
    source = "import sys\n" + block.format("sys.exit(1)")
    module = build_module("program.py", source, ast.parse(source))
    (site,) = module.calls
    assert any(
        isinstance(node, ast.Raise) and node.exc is site.node for node in ast.walk(module.tree)
    )
