"""Print the oldest versions of the dependencies and test tools that pyproject.toml allows."""

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
for requirement in project["dependencies"] + project["optional-dependencies"]["test"]:
    print(requirement.replace(">=", "=="))
