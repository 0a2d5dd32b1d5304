"""One token per row, by arg-max over logits and noise."""
