import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cfg = {"amp": amp}
    scaler = torch.amp.GradScaler("cuda") if cfg["amp"] else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if cfg["amp"]:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
