import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(3):
        for x in loader:
            optimizer.zero_grad()
            loss = model.forward(x)
            if epoch < 1:
                loss.backward()
            else:
                scaler.scale(loss).backward()
            if epoch >= 1:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
