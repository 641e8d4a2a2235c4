"""The data: judgments as integer codes, scales of grades, expert grades, ids and their index, and a summary."""
