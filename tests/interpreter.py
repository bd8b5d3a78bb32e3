"""Code in a new Python interpreter."""

import os
import subprocess
import sys
import textwrap


def run_python(code, *arguments, folder=None, **environment):
    """Run code in a new interpreter, in a folder; return the words that it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    options = {"cwd": folder, "capture_output": True, "text": True, "timeout": 1800}
    done = subprocess.run(command, env=os.environ | environment, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
