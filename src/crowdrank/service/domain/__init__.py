"""Rules of the judging service: projects, people, pairs, quotas, leases and answers."""
