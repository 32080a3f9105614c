"""The machinery of studies: units of work -> tables -> findings, with a store that never computes a unit twice.

Nothing is imported here, so that ``gnomon list`` reads the registry without loading pandas or torch.
"""
