"""What keeps a run from proving a finding: one table, kind -> doubt.

A doubt is a `Note`: the worker makes some while it runs, the gates of a verdict the others.
Gates ask for the kind and the subject of a note; its words are for the reader of a report.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from amplint.probe.messages import Note


class About(enum.Enum):
    """What of a run is doubtful, which says whom it concerns."""

    ANYTHING = "every rule but those about a place"
    WAY = "whether a loss reaches what an optimizer owns: not where the order of calls decides"
    SIZE = "how large gradients are: nothing where all of them are scaled or none"
    GRADIENT = "gradients and optimizers: not where the order of a scaler's calls decides"
    INPUT = "every rule, if the failure needs that input"
    CONTROL = "every rule: the other run that tells the cause"


@dataclass(frozen=True, slots=True)
class Doubt:
    """One row of the table.

    Args:
        words: what has to be so for the run to be right; fields of a `Note` in braces.
        clears: what makes it go.
        about: whom it concerns.
    """

    words: str
    clears: str
    about: About = About.ANYTHING


#: Kind of a note -> the doubt.
DOUBTS = {
    # What the worker took for granted.
    "arguments": Doubt(
        "somebody gives `{subject}` its {detail}", "a caller that passes them", About.INPUT
    ),
    "assertion": Doubt("the assertion in line {row} holds", "inputs with which it holds"),
    "assertion-in-part": Doubt(
        "skipped in a model or data set: the assertion in line {row} holds",
        "a rule about the order of a scaler's calls",
        About.GRADIENT,
    ),
    "connected": Doubt(
        "`{subject}` passes gradients on", "a graph that has no unknown function in it", About.WAY
    ),
    "float16": Doubt(
        "the value in line {row} is float16 with the real model, too",
        "an operation that autocast or a cast makes float16",
    ),
    "imported": Doubt(
        "what `{subject}` executes in line {row} changes nothing that is used",
        "a file that is imported by a statement",
    ),
    "launcher": Doubt(
        "`{subject}` does nothing but call `{detail}`", "a launcher of the table in `modules`"
    ),
    "loop": Doubt("loop in row {row} left after {detail} rounds", "a run that leaves it by itself"),
    "loop-elsewhere": Doubt(
        "loop elsewhere in row {row} left after {detail} rounds",
        "a rule about gradients that depend on the scale",
        About.SIZE,
    ),
    "no-parameters": Doubt(
        "an optimizer was given no known parameters: it has those of all models",
        "parameters that the code gives it",
        About.WAY,
    ),
    "optimizer-class": Doubt(
        "`{subject}` behaves like an optimizer of torch.optim",
        "callers that all pass optimizers of torch",
        About.GRADIENT,
    ),
    "scaler-class": Doubt(
        "`{subject}` behaves like torch's GradScaler",
        "a scaler of torch's own class that the code builds",
    ),
    "selected": Doubt(
        "what is selected in line {row} is not empty",
        "data of the project's own data set",
        About.SIZE,
    ),
    "skipped-in-part": Doubt(
        "skipped in a model or data set: line {row} ({detail})",
        "a rule about the order of a scaler's calls",
        About.GRADIENT,
    ),
    "small-layers": Doubt(
        "the layers are smaller than the code says",
        "layers of the real size in the time that there is",
    ),
    "unfilled": Doubt(
        "nobody fills `{subject}`, which is looked into in line {row}",
        "a builder that ran, or nothing that looks into it",
    ),
    # What the run, seen from outside, leaves open.
    "by-hand": Doubt(
        "the gradients made by hand in line {row} are what they should be",
        "a rule about the order of a scaler's calls",
        About.GRADIENT,
    ),
    "data": Doubt(
        "some data make the test in line {row} go that way",
        "no test that goes against what the tensors say",
    ),
    "derived": Doubt(
        "somebody uses `{subject}` itself, of which subclasses replace `{detail}`",
        "an object of that class, or subclasses that leave it alone",
        About.INPUT,
    ),
    "stored": Doubt(
        "`{detail}` of `{subject}` is what is defined there: some file stores another",
        "a failure whatever is passed, or no such store",
        About.INPUT,
    ),
    "different-scalers": Doubt("{subject} are different scalers", "a caller that builds them"),
    "earlier-misuse": Doubt(
        "another misuse, at line {row}, comes first", "the repair of the other one", About.GRADIENT
    ),
    "filter": Doubt(
        "the test in line {row} keeps all parameters of the real model",
        "a model of the project",
        About.GRADIENT,
    ),
    "graphs": Doubt(
        "the outputs of the real model hang together like those of the stand-in",
        "a model of the project",
    ),
    "never-fed": Doubt(
        "the backward reaches none of the parameters that the optimizer owns",
        "a model and an optimizer that the code builds",
        About.GRADIENT,
    ),
    "no-backward": Doubt(
        "no backward is expected before this function is called",
        "a caller that runs one, or a scaler that the same function builds",
    ),
    "not-cleared": Doubt(
        "nothing else clears the gradients", "a zero_grad in the run", About.GRADIENT
    ),
    "only-cause": Doubt(
        "nothing but line {row} causes it",
        "a counterfactual run that gets past the line",
        About.CONTROL,
    ),
    "owner": Doubt(
        "`{subject}` owns the parameters that its name suggests",
        "an optimizer that the code builds",
        About.GRADIENT,
    ),
    "owners": Doubt(
        "each optimizer owns the parameters that its name suggests",
        "optimizers that the code builds",
        About.GRADIENT,
    ),
    "repeated": Doubt("its caller calls it more than once", "a caller that loops"),
    "scales-itself": Doubt(
        "the optimizer leaves unscaling to the scaler",
        "no fused optimizer in the files around",
        About.GRADIENT,
    ),
    "second-call": Doubt(
        "its caller does nothing to scaler or gradients between two calls",
        "a whole round in one call, or a caller that loops",
    ),
    "skipped": Doubt(
        "line {row} was skipped ({detail})",
        "a run that skips nothing, or a statement outside the slice",
    ),
    "some-epochs": Doubt(
        "what is measured does not change with the counter that line {row} tests",
        "no test of a counter on the way",
    ),
    "sparse": Doubt(
        "gradients are not sparse, which are often stepped by hand",
        "a file that has to do with no sparse gradients",
        About.GRADIENT,
    ),
    "trained": Doubt(
        "no other input of the function is trained",
        "the same failure with everything trained",
        About.GRADIENT,
    ),
    "unsteady": Doubt(
        "two runs with the same inputs gave different gradients",
        "a run that repeats itself",
        About.GRADIENT,
    ),
    "untouched": Doubt(
        "`{subject}` in line {row} does not touch scaler, optimizer or gradients",
        "an observer or a schedule of the tables in `modules`, or a project's own function",
    ),
    "on-gpu": Doubt(
        "`{subject}` is on the GPU there", "a run in which the code moves the model to CUDA"
    ),
    # What may keep the program from accepting what is needed.
    "machine": Doubt(
        "the machine is such that {detail}", "a failure on every machine", About.INPUT
    ),
    "may-refuse": Doubt(
        "`{subject}` in line {row} neither refuses nor changes what is needed",
        "an observer of the table in `modules`, or a need less",
        About.INPUT,
    ),
    "together": Doubt(
        "the program accepts {detail} together",
        "the project's own parser, run, or a file that has all of it",
        About.INPUT,
    ),
    "unknown-caller": Doubt(
        "`{subject}` calls it with such arguments",
        "a launcher of the table in `modules`",
        About.INPUT,
    ),
    "unknown-value": Doubt(
        "what nobody has seen can be so: {detail}",
        "an option, a field or a file that says so",
        About.INPUT,
    ),
    "written": Doubt(
        "the program has not written itself, by `{subject}` in line {row}, that {detail}",
        "a run that writes nothing of that name",
        About.INPUT,
    ),
    # What nobody has seen a caller do.
    "input": Doubt("somebody passes {detail}", "a caller or a file that says so", About.INPUT),
    "never-passed": Doubt(
        "a caller passes {detail}: none was seen to do it", "a caller that passes it", About.INPUT
    ),
    "no-control": Doubt("no run was left for a control", "time", About.CONTROL),
    "no-success": Doubt(
        "no input was found with which the line succeeds",
        "a run that gets past the line",
        About.CONTROL,
    ),
    "not-prevented": Doubt(
        "`{subject}` does not pass what prevents it", "a caller under which it shows", About.INPUT
    ),
    "passed": Doubt("a caller passes {detail}", "a call whose text or run passes it", About.INPUT),
    "prevented": Doubt(
        "a caller does not pass what prevents it: none is seen to do that",
        "a call with what is known of it, run",
        About.INPUT,
    ),
    "repaired": Doubt(
        "line {row} is repaired first: {subject} ends every run before this one",
        "the repair of the other one",
        About.CONTROL,
    ),
    "unasked": Doubt("no run was left for its callers", "time", About.INPUT),
}


def kinds_about(*subjects: About) -> frozenset[str]:
    """The kinds of doubts about some of these."""
    return frozenset(kind for kind, doubt in DOUBTS.items() if doubt.about in subjects)


#: Kinds about how a run comes to a line, which say nothing about what happens there where that
#: is the same whatever the way.
ABOUT_REACHING = frozenset({"loop", "loop-elsewhere", "data", "assertion"})

#: Longest text of a statement that was skipped beside the training.
_LONGEST = 160

#: A function that does a part of a round was called again.
SECOND_CALL = Note("second-call")
#: The probe has called the function again, where no caller was seen to do that.
REPEATED = Note("repeated")
#: Several optimizers are passed in.
OWNERS = Note("owners")
#: Gradients differ between two runs of one request.
UNSTEADY = Note("unsteady")


def words_of(note: Note) -> str:
    """A note as a sentence that has to be true."""
    words = DOUBTS[note.kind].words.format(subject=note.subject, row=note.row, detail=note.detail)
    if not note.row:
        words = words.replace(" in line 0", "")
    return words[:_LONGEST] if note.kind == "skipped-in-part" else words


def in_words(notes: Iterable[Note]) -> tuple[str, ...]:
    """The sentences of several notes, each once."""
    return tuple(dict.fromkeys(map(words_of, notes)))
