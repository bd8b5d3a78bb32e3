"""The commands of ``fastemf NAME``: one module each, with `add` (its parser) and `run`.

Only the standard library is imported before a command runs.
"""
