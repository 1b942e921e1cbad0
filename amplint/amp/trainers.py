"""The arguments of Hugging Face's trainers, and the models those trainers get."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.amp.view import AmpView
from amplint.code.expressions import last_name
from amplint.code.module import CallSite, Class
from amplint.values.objects import Objects

_LIBRARIES = ("transformers.", "trl.", "sentence_transformers.", "optimum.")
#: transformers and trl derive all of these from `TrainingArguments`.
_ARGUMENTS = frozenset(
    ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "RewardConfig")
    + ("KTOConfig", "ORPOConfig", "CPOConfig", "GRPOConfig", "SentenceTransformerTrainingArguments")
)
_TRAINERS = frozenset(
    ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "RewardTrainer", "KTOTrainer")
    + ("ORPOTrainer", "CPOTrainer", "GRPOTrainer", "SentenceTransformerTrainer")
)


def training_arguments(view: AmpView) -> Iterator[CallSite]:
    """Calls of the file that build `TrainingArguments` or a class derived from it."""
    return (site for site in view.module.calls if is_library_call(view.objects, site, _ARGUMENTS))


def trainers(view: AmpView) -> Iterator[CallSite]:
    """Calls of the file that build a `Trainer` or a class derived from it."""
    return (site for site in view.module.calls if is_library_call(view.objects, site, _TRAINERS))


def is_training_arguments(dotted: str | None) -> bool:
    """Whether a dotted name is one of the libraries' classes of arguments."""
    return _is_library_name(dotted, _ARGUMENTS)


def is_library_call(objects: Objects, site: CallSite, names: frozenset[str]) -> bool:
    """Whether a call builds an object of a library's class, or of a project's subclass of it."""
    if _is_library_name(site.dotted, names):
        return True
    if not last_name(site.node.func)[:1].isupper():
        return False  # no class: looking for what it is may parse other files
    known = objects.symbol(site.node.func, site.function)
    return isinstance(known, Class) and any(
        _is_library_name(base, names) for base in objects.base_names(known)
    )


def _is_library_name(dotted: str | None, names: frozenset[str]) -> bool:
    if dotted is None or not dotted.startswith(_LIBRARIES):
        return False
    return dotted.rpartition(".")[2] in names


def argument_named(site: CallSite, name: str, index: int) -> object:
    """The expression of an argument by keyword or position; None if it is not given."""
    for keyword in site.node.keywords:
        if keyword.arg == name:
            return keyword.value
    return site.node.args[index] if len(site.node.args) > index else None
