import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        loss = model.forward(x)
        scaler.scale(loss).backward()
        need = True
        if (i + 1) % accum != 0:
            need = False
        if not need:
            continue
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
