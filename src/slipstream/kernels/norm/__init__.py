"""Root-mean-square norms, alone and fused with what follows."""
