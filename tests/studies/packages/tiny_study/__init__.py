"""A small package with a real study of three dependent stages, as another author would ship it."""
