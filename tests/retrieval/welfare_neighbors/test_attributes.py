"""Labels of every kind become numbers; what is missing is said."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gnomon.retrieval.welfare_neighbors import encode_attributes


def test_labels_are_numbered_in_sorted_order():
    encoded = encode_attributes(["red", "blue", "red"])
    assert encoded.names == ("blue", "red")
    assert encoded.codes.tolist() == [[1], [0], [1]]
    assert encode_attributes(np.array([3.0, 1.0])).names == (1.0, 3.0)  # whole numbers stored as floats


def test_equal_labels_in_two_columns_stay_apart():
    frame = pd.DataFrame({"author": ["x", "y"], "editor": ["x", "x"]})
    encoded = encode_attributes(frame)
    assert encoded.names == (("author", "x"), ("author", "y"), ("editor", "x"))
    assert encoded.codes.tolist() == [[0, 2], [1, 2]]
    assert encoded.classes == ("author", "editor")
    assert encoded.balanced_weights() == pytest.approx([0.5, 0.5, 1.0])
    assert encode_attributes(np.array([["x", "x"], ["y", "x"]])).codes.tolist() == [[0, 2], [1, 2]]


def test_sets_and_indicator_matrices_agree():
    sets = [{"a", "b"}, {"b"}, {"c"}]
    assert encode_attributes(sets).codes.tolist() == [[0, 1], [1, -1], [2, -1]]
    indicator = sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]]))
    assert encode_attributes(indicator).codes.tolist() == [[0, 1], [1, -1], [2, -1]]


@pytest.mark.parametrize("labels", [["a", None, "a", None], np.array(["a", None, "a", None], dtype=object)])
def test_missing_labels_share_one_attribute_or_are_their_own(labels):
    assert encode_attributes(labels).codes.ravel().tolist() == [0, 1, 0, 1]
    own = encode_attributes(labels, missing="own")
    assert own.codes.ravel().tolist() == [0, 1, 0, 2]
    assert own.names == ("a", "missing 1", "missing 3")
    with pytest.raises(ValueError, match=r"vector 1 is missing \(2 in all\)"):
        encode_attributes(labels, missing="error")
    assert encode_attributes([{"a"}, set()]).names == ("a", "missing")


def test_measurements_are_no_labels():
    with pytest.raises(TypeError, match=r"got 0.5; bin the values first"):
        encode_attributes([1.0, 0.5])


def test_shapes():
    with pytest.raises(ValueError, match=r"got shape \(1, 1, 1\)"):
        encode_attributes(np.zeros((1, 1, 1)))
    with pytest.raises(ValueError, match="missing must be"):
        encode_attributes([1], missing="drop")  # pyright: ignore
