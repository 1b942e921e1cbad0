import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    offset = 3
    for i, x in enumerate(loader):
        step = offset + i
        if step % accum == 0:
            optimizer.zero_grad()
        scaler.scale(model.forward(x)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
