"""The harness around a model call."""
