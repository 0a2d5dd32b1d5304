"""Parameters on rows, filtering, drawing and verification.

Read first: `verify.verify` (ladder → verdict), `sampler.draw` (logits → one token per row), `noise.gumbel_noise`.
"""
