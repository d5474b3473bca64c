"""What a person can put right. Apart from all else, so that `trainmon --help` loads nothing heavy."""


class UserError(Exception):
    """Something the person at the keyboard can put right. The message is one line that says how."""
