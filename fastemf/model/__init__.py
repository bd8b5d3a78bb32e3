"""The fitted model, what can be asked of it, and its file."""
