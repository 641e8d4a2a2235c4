"""The table of judgments, integer-coded; readers, writers, validation; features and expert grades."""
