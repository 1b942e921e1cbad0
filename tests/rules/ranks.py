"""Two ranks whose gradients overflow on rank 1 alone, with each kind of scaler: `ranks.py FOLDER`.

Each rank writes as JSON into `FOLDER/KIND-RANK` whether it stepped and its scale afterwards. Ranks
are forks of this process, which has imported torch once for all of them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer of each rank would import it
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

SCALERS = {"plain": torch.amp.GradScaler, "sharded": ShardedGradScaler}


def train(folder: Path, kind: str, rank: int) -> None:
    """Train one step."""
    torch.set_num_threads(1)
    address = (folder / f"{kind}-rendezvous").as_uri()
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = FSDP(torch.nn.Linear(4, 3), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = SCALERS[kind]("cpu", init_scale=65536.0)
    scaler.scale(model(torch.randn(8, 4)).square().mean()).backward()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        if rank == 1 and parameter.grad is not None:
            parameter.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    moved = any(not torch.equal(old, new) for old, new in zip(before, model.parameters()))
    (folder / f"{kind}-{rank}").write_text(json.dumps([moved, scaler.get_scale()]))
    torch.distributed.barrier()


def main(folder: Path) -> None:
    """Both kinds, one after the other."""
    for kind in SCALERS:
        for rank in (0, 1):
            if os.fork() == 0:
                train(folder, kind, rank)
                os._exit(0)  # tearing gloo down aborts now and then
        if os.wait()[1] or os.wait()[1]:
            sys.exit(f"a rank with the {kind} scaler failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
