"""The paper's experiments: ``fastemf reproduce NAME --out FOLDER``.

Each writes its figures (PNG, which needs matplotlib), all its numbers (CSV) and a report
(HTML, in one file) that shows both.
"""
