"""Times and memory: of selection, embedding, training, and how they grow."""
