"""House rules of the prose that a machine can check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SOURCES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("fastemf", "bench", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")]
]

# Verbs that summaries begin with; add the one you need.
VERBS = re.findall(
    r"\w+",
    """
Add Address Allocate Alternate Answer Append Apply Approach Ask Assemble Average Begin Bound Build
Call Cast Change Check Choose Clear Clip Close Combine Compare Compile Complete Compute Condense
Configure Connect Continue Convert Copy Correct Count Create Cut Decide Delete Describe Divide Do
Draw Drop Encode Estimate Evaluate Exchange Extend Extrapolate Factor Fetch Fill Find Fit Fold
Follow Forget Form Format Gather Generate Get Give Go Group Hand Hash Hold Improve Initialise Insist
Interpolate Invert Join Judge Keep Label Launch Leave Let List Load Look Make Mark Measure Merge
Minimise Mix Move Multiply Name Narrow Normalise Number Observe Open Order Orthogonalise
Orthonormalise Overwrite Pack Pad Parse Pass Pick Place Plan Predict Prepare Print Project Propose
Put Raise Rank Read Rebuild Record Recover Reduce Refuse Release Remember Remove Render Renew Repeat
Replace Report Reset Resume Return Rotate Round Run Save Say Scale Search Select Send Set Shift Show
Shrink Shuffle Skip Solve Sort Split Spread Start Step Stop Store Subtract Sum Summarise Swap Take
Tell Test Time Track Transform Transpose Try Tune Turn Undo Unpack Update Use Verify Visit Wait Warm
Warn Weigh Widen Wrap Write Yield
""",
)

# A phrase that reads oddly, and the one to use.
PHRASES = {
    "same bits": "bitwise identical",
    "to the bit": "bitwise",
    "not settle": "not converge",
    "settles": "converges",
}


def functions(tree):
    """Yield the functions of a module that have a docstring, but for properties."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            names = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
            if not names & {"property", "cached_property", "setter"}:
                yield node


@pytest.mark.parametrize("name", SOURCES)
def test_the_docstring_of_a_function_starts_with_a_verb(name):
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    others = [
        f"{node.name}: {first}"
        for node in functions(tree)
        if (first := re.split(r"\W", ast.get_docstring(node), maxsplit=1)[0]) not in VERBS
    ]
    assert not others, "not among VERBS"


@pytest.mark.parametrize("name", [*SOURCES, *PAGES])
def test_phrases_are_those_of_the_field(name):
    text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
    for phrase, better in PHRASES.items():
        assert phrase not in text, f"write {better!r}"


def test_places_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"`([\w./]+(?:/|\.py))`", text)
    assert len(places) > 20
    for place in places:
        assert (ROOT / "fastemf" / place).exists() or (ROOT / place).exists(), place
