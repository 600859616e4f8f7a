"""From rows to averages, claims, tables, figures and pages; without torch."""
