"""From judgments, features and a few expert grades to a ranker: `run`."""
