import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        did = False
        for x in (batch, batch):
            loss = model.forward(x)
            if torch.isfinite(loss):
                scaler.scale(loss).backward()
                did = True
        if did:
            scaler.step(optimizer)
            scaler.update()
