"""Tests of exports; a package, so that other tests can import the evaluators of engines."""
