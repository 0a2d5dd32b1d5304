"""Changed copies of checkpoints: features switched off, other block selections, control drafters. Needs torch."""
