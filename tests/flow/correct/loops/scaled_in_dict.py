import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        out = {"loss": model.forward(x)}
        out["scaled"] = scaler.scale(out["loss"])
        out["scaled"].backward()
        scaler.step(optimizer)
        scaler.update()
