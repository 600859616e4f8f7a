"""Streams and the models that learn them."""
