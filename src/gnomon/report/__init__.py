"""Charts and pages made from a stored run."""
