import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda") if amp else None
    backend = "native" if amp else "none"
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if backend == "native":
            scaler.scale(loss).backward()
        elif backend == "none":
            loss.backward()
        else:
            raise ValueError(backend)
        if backend == "none":
            optimizer.step()
        elif backend == "native":
            scaler.step(optimizer)
            scaler.update()
