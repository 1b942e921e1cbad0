"""One of two ranks whose gradients overflow on rank 1 alone: `one_rank.py RANK FILE KIND`.

Prints as JSON whether this rank stepped and its scale afterwards.
"""

from __future__ import annotations

import json
import sys

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def main(rank: int, address: str, kind: str) -> None:
    """Train one step; `kind` is "plain" or "sharded"."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = FSDP(torch.nn.Linear(4, 3), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = ShardedGradScaler if kind == "sharded" else torch.amp.GradScaler
    scaler = build("cpu", init_scale=65536.0)
    scaler.scale(model(torch.randn(8, 4)).square().mean()).backward()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        if rank == 1 and parameter.grad is not None:
            parameter.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    moved = any(not torch.equal(old, new) for old, new in zip(before, model.parameters()))
    print(json.dumps([moved, scaler.get_scale()]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
