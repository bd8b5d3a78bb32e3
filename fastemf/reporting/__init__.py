"""One HTML page about a model and the observations that judge it, a file for each section."""
