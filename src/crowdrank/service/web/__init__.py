"""The web application of the judging service: HTTP API and pages."""
