import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    stepped = True
    for i, x in enumerate(loader):
        scaler.scale(model.forward(x)).backward()
        stepped = False
        if (i + 1) % accum == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            stepped = True
    if not stepped:
        scaler.step(optimizer)
        scaler.update()
