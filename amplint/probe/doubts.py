"""What keeps a run from proving a finding, in words.

A doubt is a `Note`: the worker makes some while it runs, the gates of a verdict the others.
Gates ask for the kind and the subject of a note; its words are for the reader of a report.
"""

from __future__ import annotations

from collections.abc import Iterable

from amplint.probe.messages import Note

#: Kind of a note -> what has to be so for the run to be right.
WORDS = {
    # What the worker took for granted.
    "arguments": "somebody gives `{subject}` its {detail}",
    "assertion": "the assertion in line {row} holds",
    "assertion-in-part": "skipped in a model or data set: the assertion in line {row} holds",
    "connected": "`{subject}` passes gradients on",
    "float16": "the value in line {row} is float16 with the real model, too",
    "launcher": "`{subject}` does nothing but call `{detail}`",
    "loop": "loop in row {row} left after {detail} rounds",
    "loop-elsewhere": "loop elsewhere in row {row} left after {detail} rounds",
    "no-parameters": "an optimizer was given no known parameters: it has those of all models",
    "optimizer-class": "`{subject}` behaves like an optimizer of torch.optim",
    "scaler-class": "`{subject}` behaves like torch's GradScaler",
    "selected": "what is selected in line {row} is not empty",
    "skipped-in-part": "skipped in a model or data set: line {row} ({detail})",
    "small-layers": "the layers are smaller than the code says",
    # What the run, seen from outside, leaves open.
    "by-hand": "the gradients made by hand in line {row} are what they should be",
    "data": "some data make the test in line {row} go that way",
    "different-scalers": "{subject} are different scalers",
    "earlier-misuse": "another misuse, at line {row}, comes first",
    "filter": "the test in line {row} keeps all parameters of the real model",
    "graphs": "the outputs of the real model hang together like those of the stand-in",
    "never-fed": "the backward reaches none of the parameters that the optimizer owns",
    "no-backward": "no backward is expected before this function is called",
    "not-cleared": "nothing else clears the gradients",
    "only-cause": "nothing but line {row} causes it",
    "owner": "`{subject}` owns the parameters that its name suggests",
    "owners": "each optimizer owns the parameters that its name suggests",
    "repeated": "its caller calls it more than once",
    "scales-itself": "the optimizer leaves unscaling to the scaler",
    "second-call": "its caller does nothing to scaler or gradients between two calls",
    "skipped": "line {row} was skipped ({detail})",
    "sparse": "gradients are not sparse, which are often stepped by hand",
    "trained": "no other input of the function is trained",
    "unsteady": "two runs with the same inputs gave different gradients",
    "untouched": "`{subject}` in line {row} does not touch scaler, optimizer or gradients",
    # What nobody has seen a caller do.
    "input": "somebody passes {detail}",
    "never-passed": "a caller passes {detail}: none was seen to do it",
    "no-control": "no run was left for a control",
    "no-success": "no input was found with which the line succeeds",
    "not-prevented": "`{subject}` does not pass what prevents it",
    "passed": "a caller passes {detail}",
    "prevented": "a caller does not pass what prevents it: none is seen to do that",
    "repaired": "line {row} is repaired first: {subject} ends every run before this one",
    "unasked": "no run was left for its callers",
}
#: Longest text of a statement that was skipped beside the training.
_LONGEST = 160

#: A function that does a part of a round was called again.
SECOND_CALL = Note("second-call")
#: Several optimizers are passed in.
OWNERS = Note("owners")
#: Gradients differ between two runs of one request.
UNSTEADY = Note("unsteady")


def words_of(note: Note) -> str:
    """A note as a sentence that has to be true."""
    template = WORDS.get(note.kind, "{subject}")
    words = template.format(subject=note.subject, row=note.row, detail=note.detail)
    return words[:_LONGEST] if note.kind == "skipped-in-part" else words


def in_words(notes: Iterable[Note]) -> tuple[str, ...]:
    """The sentences of several notes, each once."""
    return tuple(dict.fromkeys(map(words_of, notes)))
