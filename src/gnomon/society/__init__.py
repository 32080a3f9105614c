"""Society: populations of people and models that learn from, trade with and steer one another."""
