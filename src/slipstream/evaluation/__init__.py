"""Judge a checkpoint by what it does: loss, tasks, acceptance, losslessness, ablations, each with its uncertainty.

Everything runs through the product, an `LLM` in this process. Not here: speed (harness and `slipstream bench`), and
training.
"""
