"""What ``fastemf NAME`` does: one module per command, each with `add` (its parser) and `run`.

Only the standard library is imported before a command runs.
"""
