import torch

scaler = None


def setup(amp):
    global scaler
    if amp:
        scaler = torch.amp.GradScaler("cuda")
    else:
        scaler = None


def main(model, loader, amp, clip, accum):
    setup(amp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
