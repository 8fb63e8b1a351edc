"""weft_ray/libraries.py: where the program finds CUDA's libraries, which the wheel does not carry.

The program loads cuBLASLt, cuDNN and NCCL by their names. Where the system has not installed them, they may have come
with NVIDIA's Python packages, as those of PyTorch do. This module is sent to nodes by value and uses only the standard library.
"""

import glob
import os
import sys

LOADED = ("libcublasLt.so.*", "libcudnn.so.*", "libnccl.so.*", "libnvrtc.so.*")


def cuda_folders():
    """Folders of NVIDIA's Python packages that hold one of them."""
    places = [place for place in dict.fromkeys(sys.path) if os.path.isabs(place)]
    folders = [folder for place in places for folder in sorted(glob.glob(os.path.join(glob.escape(place), "nvidia/*/lib")))]
    return [folder for folder in folders if any(glob.glob(os.path.join(glob.escape(folder), name)) for name in LOADED)]


def with_cuda(environment):
    """The environment in which the program finds them; the user's own folders come first."""
    folders = [*filter(None, [environment.get("LD_LIBRARY_PATH")]), *cuda_folders()]
    return {**environment, "LD_LIBRARY_PATH": ":".join(folders)} if folders else dict(environment)
