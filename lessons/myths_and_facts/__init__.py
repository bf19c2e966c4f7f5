"""Myths and facts."""
