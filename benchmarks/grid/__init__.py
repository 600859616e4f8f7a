"""Cells, methods, selection, training, workers and rows of a grid."""
