"""Tests of rankers; a package, so that other tests can import its references."""
