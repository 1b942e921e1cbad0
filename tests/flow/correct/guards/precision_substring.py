import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision = "fp16" if amp else "fp32"
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if "16" in precision:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if precision == "fp16":
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
