"""Commands of ``fastemf``: each module has ``add_commands``, which adds parsers with a ``run``.

A command reads files, calls one public function and prints the result.
"""
