"""Tell by a file's bytes whether an analysis starts in it, before anything is parsed."""

from __future__ import annotations

import re

#: A rule needs one of these words: the AMP classes, a name that makes an expression a
#: scaler, or a suppression comment that may be unused (AMP900). Lower case. What autocast
#: forbids (AMP502) stands in files that know nothing of it.
_WORDS = (b"scaler", b"autocast", b"unscale_", b"amplint", b"bceloss")

#: Or two of these together: training arguments and Accelerate with their own scaler (AMP401,
#: AMP603, AMP605), models that fill with a large constant (AMP503), weights (AMP406), averages
#: of weights (AMP407), choices of bfloat16 and TF32 (AMP210, AMP211), positions (AMP509),
#: clips and plain backwards beside a library that scales (AMP608, AMP609, AMP611, AMP612), and
#: gradients that it accumulates (AMP613). Lower case.
_PAIRS = (
    (b"fp16", (b"trainingarguments", b"accelerat", b"bf16")),
    (b"masked_fill", (b"1e",)),
    (b"torch.full(", (b"1e",)),
    (b"adam", (b"bfloat16", b".half()")),
    (b"parameters()", (b".mul_(", b".lerp_(")),
    (b"state_dict()", (b".mul_(", b".lerp_(", b" *= ")),
    (b"arange", (b"float16", b".half()")),
    (b"is_bf16_supported", (b"float16", b"fp16")),
    (b"fp32_precision", (b"allow_tf32",)),
    (b"averagedmodel", (b"half", b"float16")),
    (b"clip_grad", (b"lightning", b"accelerat")),
    (b".backward()", (b"lightning", b"accelerat")),
    (b".backward(retain_graph", (b"lightning", b"accelerat")),
    (b".accumulate(", (b"backward(",)),
)

#: The word "amp" (a module, a flag), or a code such as "amp110". The look-behind comes after
#: the literal because only a pattern that starts with literals is searched for quickly.
_AMP = re.compile(rb"amp(?<!\wamp)(?:\d|\b)")

#: Words that count only in one spelling: what autocast forbids (AMP502) or casts unasked
#: (AMP505). A plain search for the word is many times faster than one for the pattern.
_SPELLINGS = (
    (b"binary_cross_entropy", re.compile(rb"binary_cross_entropy(?!_with)")),
    (b"autograd", re.compile(rb"autograd(?:\.| import )function")),
)

#: An epsilon that float16 does not hold, a function that it guards, and what makes float16 of a
#: tensor under an autocast of another file, or an activation that keeps it so (AMP504).
_TINY = re.compile(rb"e-(?:0?[6-9]|[1-9]\d)\b")
_GUARDED = re.compile(rb"\blog(?:2|10)?\(|sqrt\(|reciprocal\(")
_HALF = re.compile(rb"sigmoid|mm\(|matmul|einsum|linear|conv| @ ")
_DIVIDED = re.compile(rb"/ ?\([^\n]{1,60}(?:eps|\de-)")

#: A mask filled with a number that has a name, perhaps of another file (AMP503).
_NAMED_FILL = re.compile(
    rb"masked_fill_?\([^\n]{1,120}, ?(?:value ?= ?)?-?(?!(?:math|torch|np|numpy)\.)[a-z_][\w.]*\)"
)

#: What a file does that trains, whoever made its scaler.
_TRAINS = re.compile(rb"\.backward\(|\.step\(|zero_grad\(|clip_grad_")

#: What a file that trains with AMP holds, or makes for those that do.
_STEPS = re.compile(rb"(?i:grad_?scaler)|unscale_|\.backward\(|\.step\(")

#: Escapes, shifts and wide characters can hide a word from a byte scan. A declared encoding
#: other than these, which extend ASCII byte for byte, is therefore never screened out.
_DECLARATION = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_EXTENDS_ASCII = re.compile(rb"utf[-_]?8|latin[-_]?1|ascii|iso[-_]8859[-_]\d+|cp125\d$|euc[-_]")


def trains(data: bytes) -> bool:
    """Whether a file may drive what another one does with AMP: it touches gradients or steps.

    Args:
        data: the undecoded file.
    """
    return _TRAINS.search(data) is not None


def trains_with_amp(data: bytes) -> bool:
    """Whether a file has a part in mixed-precision training that another one may drive.

    Args:
        data: the undecoded file.
    """
    return _STEPS.search(data) is not None and mentions_amp(data)


def mentions_amp(data: bytes) -> bool:
    """Whether a rule could fire in the file by what stands in it alone.

    Args:
        data: the undecoded file.
    """
    lower = data.lower()
    if any(word in lower for word in _WORDS) or _AMP.search(lower):
        return True
    for first, others in _PAIRS:
        if first in lower and any(other in lower for other in others):
            return True
    if any(word in lower and spelling.search(lower) for word, spelling in _SPELLINGS):
        return True
    if _TINY.search(lower) and (
        _DIVIDED.search(lower) or _GUARDED.search(lower) and _HALF.search(lower)
    ):
        return True
    if _NAMED_FILL.search(lower):
        return True
    if b"\0" in data:  # perhaps UTF-16, which hides every word
        return True
    declared = _DECLARATION.search(lower[:1000].replace(b"\r", b"\n"))
    return declared is not None and not _EXTENDS_ASCII.match(declared.group(1))
