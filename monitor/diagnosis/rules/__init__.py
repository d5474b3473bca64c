"""The rules, by subject. `monitor.diagnosis.diagnose` finds them by listing this package."""
