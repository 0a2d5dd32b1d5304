"""Life cycle, order, budgets, plans and commits. No tensors."""
