import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for phase in ("train", "val"):
        training = phase == "train"
        for x in loader:
            loss = model.forward(x)
            if training:
                optimizer.zero_grad()
                scaler.scale(loss).backward()
            if not training:
                continue
            scaler.step(optimizer)
            scaler.update()
