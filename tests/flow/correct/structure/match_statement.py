import torch


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda") if amp else None
    mode = "amp" if amp else "full"
    for x in loader:
        optimizer.zero_grad()
        loss = model.forward(x)
        match mode:
            case "amp":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            case _:
                loss.backward()
                optimizer.step()
