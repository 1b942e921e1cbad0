import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision = "fp16" if amp else "fp32"
    use = precision == "fp16"
    scaler = torch.amp.GradScaler("cuda") if use else None
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        if use:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
