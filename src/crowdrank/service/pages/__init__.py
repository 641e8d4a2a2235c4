"""Pages of the judging service, in HTML; their scripts use the API."""
