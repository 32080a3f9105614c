"""The examples in the docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

import gnomon.retrieval.veritrail as veritrail

MODULES = [module.name for module in pkgutil.walk_packages(veritrail.__path__, f"{veritrail.__name__}.")]


@pytest.mark.parametrize("name", [veritrail.__name__, *MODULES])
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
