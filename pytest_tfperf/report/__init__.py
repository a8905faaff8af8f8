"""Reports: terminal, Markdown, HTML, CSV, JSON."""
