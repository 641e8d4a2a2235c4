"""HTML pages of the judging service; their scripts use the API."""
