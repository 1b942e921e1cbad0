import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    batches = list(loader)
    for step in range(len(batches)):
        scaler.scale(model.forward(batches[step])).backward()
        if step % accum == accum - 1 or step == len(batches) - 1:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
