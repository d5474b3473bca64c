"""Alerts taken to where a person is: a bell, a command of their own."""
