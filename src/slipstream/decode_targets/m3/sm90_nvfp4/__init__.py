"""Hopper, NVFP4 experts, MXFP8 for everything else that is a matrix, bfloat16 head and embedding."""
