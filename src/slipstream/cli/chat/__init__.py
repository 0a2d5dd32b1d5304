"""`slipstream chat`: a conversation on the terminal, with a server elsewhere or a model in a process of its own."""
