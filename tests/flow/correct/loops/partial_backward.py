import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    run = scaler.scale
    for x in loader:
        optimizer.zero_grad()
        run(model.forward(x)).backward()
        scaler.step(optimizer)
        scaler.update()
