"""Operations: contracts, references, selection. Knows nothing of requests."""
