import torch


def make(amp):
    if amp:
        return torch.amp.GradScaler("cuda"), True
    return None, False


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler, flag = make(amp)
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if flag:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
