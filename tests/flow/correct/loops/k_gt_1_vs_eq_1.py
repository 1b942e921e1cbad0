import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for i, x in enumerate(loader):
        if accum == 1:
            optimizer.zero_grad()
        loss = model.forward(x)
        scaler.scale(loss).backward()
        if accum > 1:
            if (i + 1) % accum == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        else:
            scaler.step(optimizer)
            scaler.update()
