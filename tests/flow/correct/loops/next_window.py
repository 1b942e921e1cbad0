import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    fresh = True
    for i, x in enumerate(loader):
        if fresh:
            optimizer.zero_grad()
            fresh = False
        scaler.scale(model.forward(x)).backward()
        if (i + 1) % accum == 0:
            scaler.step(optimizer)
            scaler.update()
            fresh = True
