import torch


def make(amp):
    return torch.amp.GradScaler("cuda") if amp else None


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = make(amp)
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
