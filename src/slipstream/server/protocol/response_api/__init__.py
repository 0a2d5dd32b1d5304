"""The Responses API: requests in, answers out. The shapes are its own; conversation and answer are everybody's."""
