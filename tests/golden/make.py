# SPDX-License-Identifier: Apache-2.0
"""Makes every golden file again: python make.py (needs torch, numpy, safetensors)."""
import attention, copying, decoders, edges, layers, optimizers, recurrent

for theme in (layers, attention, recurrent, decoders, copying, optimizers, edges): theme.make()
