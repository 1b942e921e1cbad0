import torch


def main(model, loader, amp, clip, accum):
    scaler = torch.amp.GradScaler("cuda")
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.SGD(model.parameters(), lr=0.1) if clip else None
    for x in loader:
        first.zero_grad()
        if second is not None:
            second.zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.step(first)
        if second is not None:
            scaler.step(second)
        scaler.update()
