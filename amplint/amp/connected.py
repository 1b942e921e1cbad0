"""The files that may take part in one training: those a file imports, and those that import it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.code.module import Module, mentions
from amplint.code.project import Project

#: More files than this are not followed.
FILE_LIMIT = 60
#: Libraries that run no model of the user's and choose no precision for it.
NEUTRAL = frozenset(
    ("torch", "torchvision", "torchaudio", "numpy", "scipy", "pandas", "sklearn", "skimage")
    + ("tqdm", "matplotlib", "seaborn", "PIL", "cv2", "imageio", "h5py", "lmdb", "einops")
    + ("yaml", "omegaconf", "hydra", "absl", "fire", "click", "rich", "termcolor", "colorama")
    + ("tensorboard", "tensorboardX", "wandb", "psutil", "requests", "easydict", "yacs")
    + ("albumentations", "librosa", "soundfile", "pycocotools", "torchmetrics", "__future__")
)
#: Whatever may make half precision values, or hide what does.
_HALF = re.compile(
    r"autocast|\bhalf\b|float16|fp16\b.*dtype|MixedPrecision|custom_fwd|getattr\(torch\b"
    r"|(?:args|cfg|config|conf|opt|options|self)\.\w*dtype|\.\w+_dtype\b|float8"
    r"|import_module|__import__|hub\.load|jit\.load|(?<!\.)\b(?:exec|eval)\("
)


@dataclass(frozen=True, slots=True, eq=False)
class Connected:
    """What a training that a file takes part in may consist of.

    Args:
        modules: the file itself, the files that import it, and all that these import.
        unknown: imported names that are neither a file of the project nor a neutral library.
        complete: whether all of them were followed.
    """

    modules: tuple[Module, ...]
    unknown: frozenset[str]
    complete: bool

    @property
    def is_float32(self) -> bool:
        """Whether no code in sight makes half precision values."""
        return self.complete and not any(mentions(module, _HALF) for module in self.modules)


def connected_files(project: Project, file: Module) -> Connected:
    """Follow the imports of a file, of the files that import it, and of what they import."""
    stem = file.filename.rpartition("/")[2].removesuffix(".py")
    pending = [file]
    for module in project.mentioning(file, "import", stem):
        if file in _found(project, module)[0]:
            pending.append(module)
    found: list[Module] = []
    unknown: set[str] = set()
    while pending and len(found) < FILE_LIMIT:
        module = pending.pop(0)
        if module not in found:
            found.append(module)
            imported, not_found = _found(project, module)
            pending += imported
            unknown |= not_found
    return Connected(tuple(found), frozenset(unknown), not pending)


def _found(project: Project, module: Module) -> tuple[list[Module], set[str]]:
    """The files that a module imports, and the names that are no files nor neutral libraries."""
    modules: list[Module] = []
    unknown: set[str] = set()
    for names in _imported(module):
        known = [found for name in names if (found := project.module_named(name, module))]
        modules += known[:1]
        if not known and names[0].partition(".")[0] not in NEUTRAL | sys.stdlib_module_names:
            unknown.add(names[0])
    return modules, unknown


def _imported(module: Module) -> Iterator[tuple[str, ...]]:
    """Each imported name, as the module that it may be, and then as a member of one."""
    for node in module.nodes():
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.name,)
    for dotted in dict.fromkeys(module.scopes.aliases.values()):
        yield dotted, dotted.rpartition(".")[0] or dotted
    for star in module.scopes.stars:
        yield (star,)
