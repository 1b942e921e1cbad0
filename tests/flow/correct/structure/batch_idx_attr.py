import torch


class Trainer:
    def __init__(self, model, accum):
        self.model = model
        self.accum = accum
        self.step_count = 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    @property
    def boundary(self):
        return self.step_count % self.accum == 0

    def train_step(self, x):
        loss = self.model.forward(x)
        self.scaler.scale(loss).backward()
        self.step_count += 1
        if self.boundary:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.boundary:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()


def main(model, loader, amp, clip, accum):
    trainer = Trainer(model, accum)
    for x in loader:
        trainer.train_step(x)
