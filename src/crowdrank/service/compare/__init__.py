"""Rankings of a project, and pairs drawn with known probabilities to compare them."""
