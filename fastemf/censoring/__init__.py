"""Censored observations: limits, Kaplan–Meier estimates, imputation, coverage."""
