"""One file per framework: `NAME_adapter.py` is loaded when a program imports NAME.

How to write one: docs/how-to-framework-adapter.md.
"""
