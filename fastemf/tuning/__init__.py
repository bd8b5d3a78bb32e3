"""Choosing the ridge, the noise scales and the corrections of a fit."""
