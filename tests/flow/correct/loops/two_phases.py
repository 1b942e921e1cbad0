import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for phase in ("train", "val"):
        for x in loader:
            if phase == "train":
                optimizer.zero_grad()
            loss = model.forward(x)
            if phase == "train":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
