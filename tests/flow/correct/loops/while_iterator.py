import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    iterator = iter(loader)
    done = False
    while not done:
        optimizer.zero_grad()
        count = 0
        for _ in range(accum):
            try:
                x = next(iterator)
            except StopIteration:
                done = True
                break
            loss = model.forward(x)
            scaler.scale(loss).backward()
            count += 1
        if count > 0:
            scaler.step(optimizer)
            scaler.update()
