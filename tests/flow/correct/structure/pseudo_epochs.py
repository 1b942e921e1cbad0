import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    step = 0
    while step < 4:
        for x in loader:
            if step >= 4:
                break
            optimizer.zero_grad()
            scaler.scale(model.forward(x)).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
