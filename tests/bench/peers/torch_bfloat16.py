# SPDX-License-Identifier: Apache-2.0
"""torch_train.py under bfloat16 autocast: torch_bfloat16.py SCRIPT [its arguments]."""
import runpy, sys

import torch

sys.argv = sys.argv[1:]
with torch.autocast("cpu", torch.bfloat16):
    runpy.run_path(sys.argv[0], run_name="__main__")
