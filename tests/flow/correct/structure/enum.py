import torch


class Mode:
    AMP = 1
    FULL = 2


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mode = Mode.AMP if amp else Mode.FULL
    scaler = torch.amp.GradScaler("cuda") if mode == Mode.AMP else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if mode == Mode.AMP:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if mode == Mode.FULL:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
