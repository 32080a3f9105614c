"""What the study draws."""

import altair as alt


def charts(tables, findings):
    """Mean step of every walk, by arm."""
    return {"slopes": alt.Chart(tables["slope"]).mark_point().encode(x="arm:N", y="slope:Q")}
