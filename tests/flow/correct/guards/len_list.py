import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scalers = [torch.amp.GradScaler("cuda")] if amp else []
    scaler = scalers[0] if scalers else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if len(scalers) > 0:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
