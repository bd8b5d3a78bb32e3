"""All that is compiled, and how it is launched."""
