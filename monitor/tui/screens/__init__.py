"""The screens beside the overview, one `*_screen` module each, and dialogs."""
