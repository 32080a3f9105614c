"""Where does a fitted pipeline need help? Five lines, from the pipeline to rows, regions, features and the null."""

from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gnomon.learners.tutor_pupil import TutorPupilClassifier, diagnose

# Your own fitted model and data go here.
X, y = make_moons(1200, noise=0.15, random_state=0)
pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:600], y[:600])

tutor = TutorPupilClassifier(pipeline, lam=0.3, max_steps=300, learning_rate=0.03, random_state=0).fit(X[:600], y[:600])
report = diagnose(tutor, X[600:], y[600:], n_null=39, feature_names=["length", "width"])
print(report)
print(report.rows.head(3).round(2).to_string(index=False))
scattered = report.null.loc[report.null["arm"] == "scattered-errors", "gain"]
print(f"loss falls by {report.gain}; errors scattered at random: {scattered.mean():.3f} on average")
