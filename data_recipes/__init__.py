"""Data recipes that ship with vtune."""
