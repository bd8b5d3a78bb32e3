"""All that is compiled, how it is compiled and how it is launched."""
