import torch


def batches(loader):
    yield from loader


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in batches(loader):
        optimizer.zero_grad()
        loss = model.forward(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
