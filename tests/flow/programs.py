"""Training programs in many shapes: right by construction, or with one line broken.

Each defines `main(model, loader, amp, clip, accum)`. The shapes are those of real code:
guards of equal meaning in different words, accumulation windows, split helpers, classes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Lines = list[str]

PROTOCOL_CALLS = (
    ".backward()",
    ".step(",
    ".update()",
    ".unscale_(",
    "zero_grad()",
    "clip_grad_norm_(",
)


def indent(lines: Lines, levels: int = 1) -> Lines:
    """The lines, moved right."""
    return ["    " * levels + line for line in lines]


def block(head: str, body: Lines) -> Lines:
    """A compound statement."""
    return [head, *indent(body)]


class Author:
    """Writes one correct program; the same seed writes the same one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.prefix = ""
        self.amp = self.pick("always", "enabled", "none", "none")
        self.clip = self.pick("never", "always", "sometimes", "sometimes")
        self.window = self.pick(
            "no", "no", "window", "or last", "leftover", "counter", "pending", "inner loop"
        )
        self.clears = (
            self.pick("end", "start") if self.window in ("no", "window", "or last") else "end"
        )
        self.guard = self.pick("no", "no", "no", "loss", "norm", "norm clears")
        self.layout = self.pick(
            "function", "function", "module helpers", "class", "methods", "closure"
        )
        self.epochs = self.pick(False, False, True)
        self.flag = self.pick("amp", "amp", "use_amp", "on_gpu") if self.amp == "none" else "amp"
        self._make_consistent()

    def _make_consistent(self) -> None:
        if self.guard.startswith("norm"):
            self.clip = "always"
        if self.guard == "norm" and self.amp == "always":
            self.amp = "enabled"
        if self.guard != "no" and self.window != "no":
            self.guard = "no"  # a skipped batch may leave a window without any gradient
        if self.layout == "closure" and self.window in ("counter", "pending"):
            self.window = "no"

    def pick(self, *options):
        """One of the options."""
        return self.chance.choice(options)

    def name(self, base: str) -> str:
        """A variable, or the attribute of the trainer."""
        return self.prefix + base

    # -- what one iteration is made of ---------------------------------------------------

    def guarded(self, scaled: Lines, plain: Lines) -> Lines:
        """`scaled` where AMP is on, else `plain`."""
        if self.amp != "none":
            return scaled
        scaler, flag = self.name("scaler"), self.name(self.flag)
        test = self.pick(flag, flag, f"{scaler} is not None", scaler, f"not not {flag}")
        if not plain:
            return block(f"if {test}:", scaled)
        if self.pick(True, False):
            return [*block(f"if {test}:", scaled), *block("else:", plain)]
        opposite = f"{scaler} is None" if "scaler" in test else f"not {flag}"
        if self.pick(True, False):
            return [*block(f"if {opposite}:", plain), *block("else:", scaled)]
        return [*block(f"if {test}:", scaled), *block(f"if {opposite}:", plain)]

    def backward(self) -> Lines:
        scaler = self.name("scaler")
        if self.amp == "none" and self.pick(True, False):
            test = self.pick(self.name(self.flag), scaler, f"{scaler} is not None")
            loss = self.pick("loss", "scaled")
            chosen = f"{loss} = {scaler}.scale(loss) if {test} else loss"
            return [chosen, f"{loss}.backward()"]
        direct = [f"{scaler}.scale(loss).backward()"]
        stored = [f"scaled = {scaler}.scale(loss)", "scaled.backward()"]
        return self.guarded(self.pick(direct, stored), ["loss.backward()"])

    def clipping(self) -> Lines:
        if self.clip == "never":
            return []
        unscale = self.guarded([f"{self.name('scaler')}.unscale_({self.name('optimizer')})"], [])
        threshold = self.name("clip")
        call = f"torch.nn.utils.clip_grad_norm_({self.name('model')}.parameters(), {threshold})"
        norm = [f"norm = {call}"]
        if self.clip == "always":
            return [*unscale, *norm]
        test = f"if {threshold} is not None:"
        return self.pick(
            block(test, [*unscale, *norm]),
            [*unscale, *block(test, norm)],
            [*block(test, unscale), *block(test, norm)],
        )

    def stepping(self) -> Lines:
        scaler, optimizer = self.name("scaler"), self.name("optimizer")
        step, update = [f"{scaler}.step({optimizer})"], [f"{scaler}.update()"]
        plain = [f"{optimizer}.step()"]
        if self.guard == "norm":
            return [
                *block("if torch.isfinite(norm):", self.guarded(step, plain)),
                *self.guarded(update, []),
            ]
        clear = block("if not torch.isfinite(norm):", [f"{optimizer}.zero_grad()"])
        before = clear if self.guard == "norm clears" else []
        if self.pick(True, False):
            return [*before, *self.guarded([*step, *update], plain)]
        return [*before, *self.guarded(step, plain), *self.guarded(update, [])]

    def finish(self) -> Lines:
        """Everything after the last backward of a window."""
        clear = [f"{self.name('optimizer')}.zero_grad()"] if self.clears == "end" else []
        return [*self.clipping(), *self.stepping(), *clear]

    # -- loops ---------------------------------------------------------------------------

    def forward(self) -> Lines:
        call = [f"loss = {self.name('model')}.forward(x)"]
        enabled = "" if self.amp == "always" else f", enabled={self.name(self.flag)}"
        call = self.pick(call, block(f'with torch.autocast("cuda"{enabled}):', call))
        if self.guard == "loss":
            call += block("if not torch.isfinite(loss):", ["continue"])
        return call

    def loop(self) -> Lines:
        body = {
            "no": self._single,
            "inner loop": self._inner_loop,
            "counter": self._counted,
            "pending": self._pending,
        }.get(self.window, self._windowed)()
        return block("for epoch in range(2):", body) if self.epochs else body

    def _single(self) -> Lines:
        clear = [f"{self.name('optimizer')}.zero_grad()"] if self.clears == "start" else []
        iteration = [*clear, *self.forward(), *self.backward(), *self.finish()]
        return block(self.pick("for x in loader:", "for i, x in enumerate(loader):"), iteration)

    def _windowed(self) -> Lines:
        accum = self.name("accum")
        test = self.pick(f"(i + 1) % {accum} == 0", f"i % {accum} == {accum} - 1")
        if self.window == "or last":
            test = f"{test} or i + 1 == len(loader)"
        clear = (
            block(f"if i % {accum} == 0:", [f"{self.name('optimizer')}.zero_grad()"])
            if self.clears == "start"
            else []
        )
        head = [*clear, *self.forward(), f"loss = loss / {accum}", *self.backward()]
        finish = self.finish()
        tail = self.pick(
            block(f"if {test}:", finish),
            [f"boundary = {test}", *block("if boundary:", finish)],
            [*block(f"if not ({test}):", ["continue"]), *finish],
        )
        lines = block("for i, x in enumerate(loader):", [*head, *tail])
        if self.window == "leftover":
            lines += block(f"if len(loader) % {accum} != 0:", self.finish())
        return lines

    def _inner_loop(self) -> Lines:
        inner = block(f"for _ in range({self.name('accum')}):", [*self.forward(), *self.backward()])
        return block("for x in loader:", [*inner, *self.finish()])

    def _counted(self) -> Lines:
        body = [*self.forward(), *self.backward(), "count += 1"]
        body += block(f"if count == {self.name('accum')}:", [*self.finish(), "count = 0"])
        lines = ["count = 0", *block("for x in loader:", body)]
        return [*lines, *block("if count > 0:", self.finish())]

    def _pending(self) -> Lines:
        accum = self.name("accum")
        body = [*self.forward(), *self.backward(), "pending = True"]
        body += block(f"if (i + 1) % {accum} == 0:", [*self.finish(), "pending = False"])
        lines = ["pending = False", *block("for i, x in enumerate(loader):", body)]
        return [*lines, *block("if pending:", self.finish())]

    # -- programs ------------------------------------------------------------------------

    def setup(self) -> Lines:
        scaler, flag = self.name("scaler"), self.name(self.flag)
        flags = {
            "use_amp": [f"{flag} = bool(amp)"],
            "on_gpu": [f"{flag} = amp and torch.cuda.is_available()"],
        }.get(self.flag, [])
        build = 'torch.amp.GradScaler("cuda")'
        optimizer = f"{self.name('optimizer')} = torch.optim.SGD(model.parameters(), lr=0.1)"
        if self.amp == "always":
            return [optimizer, f"{scaler} = {build}"]
        if self.amp == "enabled":
            return [optimizer, f'{scaler} = torch.amp.GradScaler("cuda", enabled=amp)']
        ternary = [f"{scaler} = {build} if {flag} else None"]
        branch = [f"{scaler} = None", *block(f"if {flag}:", [f"{scaler} = {build}"])]
        return [optimizer, *flags, *self.pick(ternary, branch)]

    def program(self) -> Lines:
        write: dict[str, Callable[[], Lines]] = {
            "function": self._function,
            "module helpers": self._helpers,
            "class": self._class,
            "methods": self._methods,
            "closure": self._closure,
        }
        return ["import torch", *write[self.layout]()]

    def _main(self, body: Lines) -> Lines:
        return block("def main(model, loader, amp, clip, accum):", body)

    def _function(self) -> Lines:
        return self._main([*self.setup(), *self.loop()])

    def _helpers(self) -> Lines:
        arguments = f"model, optimizer, scaler, loss, {self.flag}, clip"
        backward, finish = self.backward(), self.finish()
        self.backward = lambda: [f"run_backward({arguments})"]  # type: ignore[method-assign]
        self.finish = lambda: [f"finish({arguments})"]  # type: ignore[method-assign]
        loss = ["loss = None"] if self.window not in ("no", "window", "or last") else []
        return [
            *block(f"def run_backward({arguments}):", backward),
            *block(f"def finish({arguments}):", finish),
            *self._main([*self.setup(), *loss, *self.loop()]),
        ]

    def _closure(self) -> Lines:
        body = self.backward()
        self.backward = lambda: ["run_backward(loss)"]  # type: ignore[method-assign]
        inner = block("def run_backward(loss):", body)
        return self._main([*self.setup(), *inner, *self.loop()])

    def _class(self) -> Lines:
        return self._trainer([])

    def _methods(self) -> Lines:
        self.prefix = "self."
        backward, finish = self.backward(), self.finish()
        self.backward = lambda: ["self.run_backward(loss)"]  # type: ignore[method-assign]
        self.finish = lambda: ["self.finish()"]  # type: ignore[method-assign]
        return self._trainer(
            [
                *block("def run_backward(self, loss):", backward),
                *block("def finish(self):", finish),
            ]
        )

    def _trainer(self, methods: Lines) -> Lines:
        self.prefix = "self."
        given = [f"self.{name} = {name}" for name in ("model", "amp", "clip", "accum")]
        members = [
            *block("def __init__(self, model, amp, clip, accum):", [*given, *self.setup()]),
            *methods,
            *block("def fit(self, loader):", self.loop()),
        ]
        start = ["trainer = Trainer(model, amp, clip, accum)", "trainer.fit(loader)"]
        return [*block("class Trainer:", members), *self._main(start)]


def joined(lines: Lines) -> str:
    """The text of a program."""
    return "\n".join(lines) + "\n"


def broken(lines: Lines, chance: random.Random) -> str | None:
    """A program with one line deleted, doubled or moved; None if that is no Python."""
    lines = list(lines)
    sites = [index for index, line in enumerate(lines) if _is_event(line)]
    first, second = chance.choice(sites), chance.choice(sites)
    text, pad = lines[first].strip(), _pad(lines[second])
    how = chance.choice(("delete", "double", "move"))
    if how == "double":
        lines.insert(first, lines[first])
    else:
        lines[first] = ""
        if how == "move":
            lines.insert(second, pad + text)
    source = joined([line for line in lines if line])
    try:
        compile(source, "program", "exec")
    except SyntaxError:
        return None
    return source


def _is_event(line: str) -> bool:
    return any(call in line for call in PROTOCOL_CALLS) and not line.lstrip().startswith("def ")


def _pad(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
