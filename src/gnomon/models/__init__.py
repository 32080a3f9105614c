"""Language models and small nets: loading, randomising, capture, scoring."""
