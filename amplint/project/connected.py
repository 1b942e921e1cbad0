"""The files that may take part in one training: those a file imports, and those that import it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amplint.project.module import Module

if TYPE_CHECKING:
    from amplint.rule import FileView

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


@dataclass(frozen=True, slots=True, eq=False)
class Connected:
    """What a training that a file takes part in may consist of.

    Args:
        modules: the file itself, the files that mention it, and all that these import.
        unknown: imported names that are neither a file of the project nor a neutral library.
        complete: whether all of them were followed.
    """

    modules: tuple[Module, ...]
    unknown: frozenset[str]
    complete: bool


def connected_files(view: FileView) -> Connected:
    """Follow the imports of a file, of the files that mention it, and of what they import."""
    project = view.objects.project
    stem = view.module.filename.rpartition("/")[2].removesuffix(".py")
    pending = [view.module, *project.mentioning(view.module, "import", stem)]
    found: list[Module] = []
    unknown: set[str] = set()
    while pending and len(found) < FILE_LIMIT:
        module = pending.pop(0)
        if module in found:
            continue
        found.append(module)
        for names in _imported(module):
            known = next(
                (known for name in names if (known := project.module_named(name, module))), None
            )
            if known is not None:
                pending.append(known)
            elif names[0].partition(".")[0] not in NEUTRAL | sys.stdlib_module_names:
                unknown.add(names[0])
    return Connected(tuple(found), frozenset(unknown), not pending)


def _imported(module: Module) -> Iterator[tuple[str, ...]]:
    """Each imported name, as the module that it may be, and then as a member of one."""
    for node in module.nodes():
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.name,)
    aliases = module.imports.aliases
    for dotted in dict.fromkeys(aliases.values()):
        if dotted:
            yield dotted, dotted.rpartition(".")[0] or dotted
    for star in module.imports.stars:
        yield (star,)
