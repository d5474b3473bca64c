"""What screens and panels draw with: charts, rows, timelines, layout, themes."""
