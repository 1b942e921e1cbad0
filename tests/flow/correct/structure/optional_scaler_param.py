import torch


def train(model, loader, optimizer, scaler=None, accum=1):
    for i, x in enumerate(loader):
        loss = model.forward(x) / accum
        (scaler.scale(loss) if scaler else loss).backward()
        if (i + 1) % accum == 0:
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            (scaler.step(optimizer), scaler.update()) if scaler else optimizer.step()
            optimizer.zero_grad()


def main(model, loader, amp, clip, accum):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, loader, optimizer, torch.amp.GradScaler("cuda") if amp else None, accum)
