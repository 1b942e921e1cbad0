"""What a value is made of, through containers, loops and unpacking: Python runs each program.

A program asks about values with `ask(...)`. Python says of which classes they are when it runs;
amplint's answer has to name all of them, and no class that the table doesn't allow.
"""

from __future__ import annotations

import ast

import pytest

from amplint.code.project import Project
from amplint.values.callables import Kinds, classes_in
from amplint.values.objects import Objects

CLASSES = """
import contextlib
import random

class Oak:
    def __enter__(self):
        return self
    def __exit__(self, *error):
        return None

class Elm(Oak):
    pass

class Ash:
    pass

"""
#: Programs whose values amplint knows exactly: those classes, and no others.
EXACT = {
    "for_over_list": "for tree in [Oak(), Ash()]:\n    ask(tree)",
    "for_over_name": "trees = (Oak(), Ash())\nfor tree in trees:\n    ask(tree)",
    "for_over_reversed": "for tree in reversed([Oak(), Ash()]):\n    ask(tree)",
    "one_of_several": "trees = [Oak(), Ash()]\nask(trees[1])",
    "pair": "first, second = Oak(), Ash()\nask(first)",
    "second_of_pair": "first, second = Oak(), Ash()\nask(second)",
    "list_target": "[first, second] = [Oak(), Ash()]\nask(second)",
    "nested_pair": "(first, (second, third)) = Oak(), (Ash(), Elm())\nask(third)",
    "behind_star": "first, *rest, last = Oak(), Oak(), Oak(), Ash()\nask(last)",
    "enumerate": "for index, tree in enumerate([Ash(), Ash()]):\n    ask(tree)",
    "enumerate_start": "for index, tree in enumerate([Oak()], start=3):\n    ask(tree)",
    "zip_first": "for tree, other in zip([Oak()], [Ash()]):\n    ask(tree)",
    "zip_second": "for tree, other in zip([Oak()], [Ash()]):\n    ask(other)",
    "zip_in_enumerate": "for i, (a, b) in enumerate(zip([Oak()], [Ash()])):\n    ask(b)",
    "pairs_in_list": "for a, b in [(Oak(), Ash()), (Elm(), Ash())]:\n    ask(b)",
    "items": "for name, tree in {'a': Oak(), 'b': Ash()}.items():\n    ask(tree)",
    "values": "for tree in {'a': Oak(), 'b': Ash()}.values():\n    ask(tree)",
    "item_of_dict": "trees = {'a': Oak(), 'b': Ash()}\nask(trees['b'])",
    "with_item": "with Elm() as tree:\n    ask(tree)",
    "with_items": "with Elm() as tree, Oak() as other:\n    ask(other)",
    "tuple_of_function": "def make():\n    return Oak(), Ash()\na, b = make()\nask(b)",
    "or_else": "tree = None or Ash()\nask(tree)",
    "append": "trees = []\ntrees.append(Oak())\ntrees.append(Ash())\nfor tree in trees:\n    ask(tree)",
    "append_in_loop": (
        "trees = []\nfor _ in range(2):\n    trees.append(Ash())\nfor tree in trees:\n    ask(tree)"
    ),
    "key": "trees = {}\ntrees['a'] = Oak()\ntrees['b'] = Ash()\nask(trees['b'])",
    "keys_run_over": (
        "trees = {}\ntrees['a'] = Oak()\ntrees['b'] = Ash()\n"
        "for tree in trees.values():\n    ask(tree)"
    ),
    "attribute_append": (
        "class Wood:\n    def __init__(self):\n        self.trees = []\n"
        "    def plant(self, tree):\n        self.trees.append(tree)\n"
        "    def show(self):\n        for tree in self.trees:\n            ask(tree)\n"
        "wood = Wood()\nwood.plant(Oak())\nwood.plant(Ash())\nwood.show()"
    ),
}
#: Programs whose values amplint need not know: then it has to say so.
HONEST = {
    "plus": "trees = [Oak()]\ntrees += [Ash()]\nfor tree in trees:\n    ask(tree)",
    "setdefault_append": (
        "trees = {}\ntrees.setdefault('a', []).append(Ash())\nfor tree in trees['a']:\n    ask(tree)"
    ),
    "zip_of_star": "rows = [[Oak()], [Ash()]]\nfor a, b in zip(*rows):\n    ask(b)",
    "index_of_enumerate": "for index, tree in enumerate([Oak()]):\n    ask(index)",
    "keys": "for name in {'a': Oak()}.keys():\n    ask(name)",
    "inserted": "trees = [Oak()]\ntrees.insert(0, Ash())\nfor tree in trees:\n    ask(tree)",
    "extended": "trees = [Oak()]\ntrees.extend([Ash()])\nfor tree in trees:\n    ask(tree)",
    "written_over": "trees = [Oak()]\ntrees[0] = Ash()\nfor tree in trees:\n    ask(tree)",
    "other_enter": (
        "@contextlib.contextmanager\ndef open_wood():\n    yield Ash()\n"
        "with open_wood() as tree:\n    ask(tree)"
    ),
    "chosen": "tree = random.choice([Oak(), Ash()])\nask(tree)",
    "popped": "trees = [Oak(), Ash()]\nask(trees.pop())",
    "itself": "tree = Oak()\nfor _ in range(2):\n    tree = tree or Ash()\nask(tree)",
    "replaced_each_round": "tree = Oak()\nfor _ in range(2):\n    ask(tree)\n    tree = Ash()",
}


def run(program: str) -> set[str]:
    """The classes of the values that a program asks about, when Python runs it."""
    seen: set[str] = set()
    told = {"ask": lambda value: seen.add(type(value).__name__), "__name__": "m"}
    exec(compile(CLASSES + program, "main.py", "exec"), told)  # noqa: S102
    assert seen
    return seen


def answer(program: str) -> Kinds:
    source = CLASSES + program
    project = Project()
    module = project.add("main.py", source, ast.parse(source), "main.py")
    (site,) = (site for site in module.calls if site.method == "ask")
    return Objects(project).kinds(site.node.args[0], site.function)


def names(kinds: Kinds) -> set[str]:
    return {item.name for item in classes_in(kinds)}


@pytest.mark.parametrize("name", EXACT)
def test_all_classes_are_known(name: str) -> None:
    kinds = answer(EXACT[name])
    assert (names(kinds), kinds.unknown) == (run(EXACT[name]), "")


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_known_wrongly(name: str) -> None:
    kinds = answer(HONEST[name])
    assert kinds.unknown or run(HONEST[name]) <= names(kinds), names(kinds)
