#!/usr/bin/env python3
"""torch.distributed.checkpoint saves a state of that many megabytes; prints its times as JSON.

    peer_checkpoint.py FOLDER MEGABYTES

One process over gloo, as users call it: dcp.save, dcp.async_save, dcp.load. Files are synced by DCP itself
(FileSystemWriter's default).
"""

import json
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from page_cache import drop_cached


def make_state(megabytes):
    """Tensors of 4 MB, as a model's layers have."""
    return {f"layers.{i}.weight": torch.randn(1024, 1024) for i in range(megabytes * 10**6 // (4 << 20))}


def main():
    folder, megabytes = sys.argv[1], int(sys.argv[2])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577", "RANK": "0", "WORLD_SIZE": "1"}
    torch.set_num_threads(2)
    dist.init_process_group("gloo")
    state = make_state(megabytes)
    times = {}
    start = time.monotonic()
    dcp.save(state, checkpoint_id=folder)
    times["save_s"] = time.monotonic() - start
    shutil.rmtree(folder)
    start = time.monotonic()
    pending = dcp.async_save(state, checkpoint_id=folder)
    times["async_blocked_s"] = time.monotonic() - start
    pending.result()
    times["async_s"] = time.monotonic() - start
    drop_cached(folder)
    start = time.monotonic()
    dcp.load(state, checkpoint_id=folder)
    times["load_s"] = time.monotonic() - start
    dist.destroy_process_group()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
