"""Pure decisions about what a prompt holds."""
