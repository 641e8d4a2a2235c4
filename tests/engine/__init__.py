"""Tests of the engines; a package, so that its conftest has a name of its own."""
