"""Recipes that ship with vtune."""
