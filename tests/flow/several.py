"""Training programs with two optimizers: GANs, split models, lists and dicts of optimizers.

Correct by construction; see tests/flow/programs.py for what a program looks like.
"""

from __future__ import annotations

import random

from tests.flow.programs import Lines, block


class Pairs:
    """Writes one correct program with two optimizers; the same seed writes the same one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scalers = self.pick("one", "one", "two")
        self.holder = self.pick("names", "names", "list", "dict", "self")
        self.clip = self.pick(True, False)
        self.flags = self.pick("", ", enabled=amp")

    def pick(self, *options):
        """One of the options."""
        return self.chance.choice(options)

    def optimizer(self, index: int) -> str:
        """How the code names one of the two optimizers."""
        return {
            "names": ("opt_g", "opt_d"),
            "self": ("self.opt_g", "self.opt_d"),
            "list": ("optimizers[0]", "optimizers[1]"),
            "dict": ('optimizers["g"]', 'optimizers["d"]'),
        }[self.holder][index]

    def container(self) -> str:
        """Both optimizers, as a loop runs over them."""
        pair = f"({self.optimizer(0)}, {self.optimizer(1)})"
        return {"list": "optimizers", "dict": "optimizers.values()"}.get(self.holder, pair)

    def scaler(self, index: int) -> str:
        """How the code names the scaler of one of the two optimizers."""
        base = "scaler" if self.scalers == "one" else ("scaler_g", "scaler_d")[index]
        return f"self.{base}" if self.holder == "self" else base

    def setup(self) -> Lines:
        build = [f"torch.optim.SGD({model}.parameters(), lr=0.1)" for model in ("model", "model")]
        lines = {
            "list": [f"optimizers = [{build[0]}, {build[1]}]"],
            "dict": [f'optimizers = {{"g": {build[0]}, "d": {build[1]}}}'],
        }.get(self.holder) or [f"{self.optimizer(i)} = {build[i]}" for i in (0, 1)]
        made = sorted({self.scaler(0), self.scaler(1)})
        return [*lines, *(f'{name} = torch.amp.GradScaler("cuda"{self.flags})' for name in made)]

    def clear(self, index: int) -> Lines:
        return [f"{self.optimizer(index)}.zero_grad()"]

    def backward(self, index: int) -> Lines:
        amp = "self.amp" if self.holder == "self" else "amp"
        enabled = f", enabled={amp}" if self.flags else ""
        loss = ("loss_g", "loss_d")[index]
        forward = block(f'with torch.autocast("cuda"{enabled}):', [f"{loss} = model.forward(x)"])
        return [*forward, f"{self.scaler(index)}.scale({loss}).backward()"]

    def unscale(self, index: int) -> Lines:
        if not self.clip:
            return []
        return [
            f"{self.scaler(index)}.unscale_({self.optimizer(index)})",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        ]

    def step(self, index: int) -> Lines:
        return [f"{self.scaler(index)}.step({self.optimizer(index)})"]

    def update(self, index: int) -> Lines:
        return [f"{self.scaler(index)}.update()"]

    def iteration(self) -> Lines:
        return self.pick(self.alternating, self.alternating, self.every_second, self.shared)()

    def alternating(self) -> Lines:
        """One network after the other, each with its own backward."""
        self.clip = self.clip and self.scalers == "one"
        lines: Lines = []
        for index in self.pick((0, 1), (1, 0)):
            lines += [*self.clear(index), *self.backward(index), *self._solo_clip(index)]
            lines += self.step(index)
            if self.scalers == "two":
                lines += self.update(index)
        return lines if self.scalers == "two" else [*lines, *self.update(0)]

    def _solo_clip(self, index: int) -> Lines:
        return self.unscale(index)[:1]

    def every_second(self) -> Lines:
        """The generator is trained in every second iteration only."""
        critic = [*self.clear(1), *self.backward(1), *self.step(1), *self.update(1)]
        generator = [*self.clear(0), *self.backward(0), *self.step(0), *self.update(0)]
        return [*critic, *block("if i % 2 == 0:", generator)]

    def shared(self) -> Lines:
        """One loss for both optimizers."""
        self.scalers = "one"
        clip = ["torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"] if self.clip else []
        if self.pick(True, False):
            head = f"for optimizer in {self.container()}:"
            clear = block(head, ["optimizer.zero_grad()"])
            unscale = block(head, [f"{self.scaler(0)}.unscale_(optimizer)"])
            step = block(head, [f"{self.scaler(0)}.step(optimizer)"])
        else:
            clear = [*self.clear(0), *self.clear(1)]
            unscale = [*self.unscale(0)[:1], *self.unscale(1)[:1]]
            step = [*self.step(0), *self.step(1)]
        lines = [*clear, *self.backward(0)]
        return [*lines, *(unscale if self.clip else []), *clip, *step, *self.update(0)]

    def program(self) -> Lines:
        iteration = self.iteration()
        loop = block("for i, x in enumerate(loader):", iteration)
        if self.holder != "self":
            return [
                "import torch",
                *block("def main(model, loader, amp, clip, accum):", [*self.setup(), *loop]),
            ]
        members = [
            *block("def __init__(self, model, amp):", ["self.amp = amp", *self.setup()]),
            *block("def fit(self, model, loader):", loop),
        ]
        start = ["trainer = Trainer(model, amp)", "trainer.fit(model, loader)"]
        return [
            "import torch",
            *block("class Trainer:", members),
            *block("def main(model, loader, amp, clip, accum):", start),
        ]
