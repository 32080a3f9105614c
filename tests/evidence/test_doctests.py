"""The examples in the docstrings of the evidence layer run and give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import gnomon.evidence

MODULES = [f"gnomon.evidence.{module.name}" for module in pkgutil.iter_modules(gnomon.evidence.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    found = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES]
    assert sum(count > 0 for count in found) >= 7
