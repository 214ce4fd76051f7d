"""Translators between a provider's messages and the neutral step model."""
