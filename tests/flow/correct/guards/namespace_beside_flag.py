import torch


class Args:
    def __init__(self, amp):
        self.amp = amp


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    args = Args(amp)
    scaler = torch.amp.GradScaler("cuda") if amp else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if args.amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
