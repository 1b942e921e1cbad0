import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mode = str(amp)
    scaler = torch.amp.GradScaler("cuda") if amp else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if mode == "True":
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
