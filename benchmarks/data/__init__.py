"""What is fetched, verified and read."""
