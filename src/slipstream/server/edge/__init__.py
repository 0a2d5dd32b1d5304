"""What stands around the application: connections, and the log of what came through them."""
