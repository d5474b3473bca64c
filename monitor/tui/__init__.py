"""The Textual dashboard: it draws Views, and knows nothing of where they come from."""
