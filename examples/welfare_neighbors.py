"""Ten documents on a topic, not ten from one author: your vectors, one label each, five lines."""

import numpy as np

from gnomon.retrieval.welfare_neighbors import BruteIndex, WelfareNeighbors, diversity_report

# Your own vectors and labels go here; these authors each write about one region of the space.
rng = np.random.default_rng(0)
authors = rng.choice(["ann", "bob", "cat", "dan", "eve"], size=2000, p=[0.5, 0.2, 0.15, 0.1, 0.05])
voice = dict(zip(np.unique(authors), rng.normal(size=(5, 32)), strict=True))
vectors = np.array([voice[author] for author in authors]) * 0.4 + rng.normal(size=(2000, 32))
queries = rng.normal(size=(40, 32)) + 0.4 * voice["ann"]

neighbours = WelfareNeighbors(n_neighbors=10).fit(vectors, authors)
similarity, indices, details = neighbours.kneighbors(queries, return_details=True)
print("authors of the first answer:", ", ".join(authors[indices[0]]))
print(f"answers that no vector beyond the pool could change: {details.certified.mean():.0%}")

report = diversity_report(BruteIndex(vectors), queries, authors, k=10)
table = report.summary.pivot_table(index="method", columns="reading", values="value", sort=False)
print(table[["relevance_ratio", "entropy_bits", "largest_share"]].round(3).to_string())
