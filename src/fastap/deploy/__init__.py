"""Trained agents outside of training: in Python, in a file, in another language."""
