import torch


class Null:
    def __enter__(self):
        pass

    def __exit__(self, *a):
        pass


class NoSync(Null):
    pass


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        sync = (i + 1) % accum == 0 or (i + 1) == len(loader)
        context = Null() if sync else NoSync()
        with context:
            loss = model.forward(x)
            scaler.scale(loss).backward()
        if sync:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
