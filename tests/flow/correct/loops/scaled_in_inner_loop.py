import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        for task in (1, 2):
            loss = scaler.scale(model.forward(x))
        loss.backward()
        scaler.step(optimizer)
        scaler.update()
