"""How the offline judge reads a sentence: numbers, dates, names, negation, hedges and who did what to whom."""
