"""HTTP: schema, routes, error mapping. No tensors."""
