import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    step = 0
    for x in loader:
        if step % accum == 0:
            optimizer.zero_grad()
        loss = model.forward(x)
        scaler.scale(loss).backward()
        step += 1  # noqa: SIM113 - a counter moved by hand is the point
        if step % accum == 0:
            scaler.step(optimizer)
            scaler.update()
