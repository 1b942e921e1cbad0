import torch

NATIVE, NONE = "native", "none"


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backend = NATIVE if amp else NONE
    scaler = torch.amp.GradScaler("cuda") if backend == NATIVE else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if backend == NATIVE:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
