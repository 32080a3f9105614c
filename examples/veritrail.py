"""Which step invented it? Texts of a small map-reduce summary, five lines, and the step that brought an error in."""

from gnomon.retrieval.veritrail import Node, OfflineJudge, Process, verify

# Your own texts go here, or a trace: Process.from_json, from_graphrag, from_langchain, from_otel, from_networkx.
process = Process(
    [
        Node("report-1", "Corvus Electronics opened a plant in Kiel on 4 May 2011. It created 300 jobs in Kiel."),
        Node("report-2", "Osprey Airlines moved its headquarters to Linz on 9 June 2012, at a cost of $2 million."),
        Node("summary-1", "On 4 May 2011, Corvus Electronics opened its plant in Kiel, which created 300 jobs."),
        Node("summary-2", "Osprey Airlines moved its headquarters to Linz on 9 June 2012 for 7 million dollars."),
        Node(
            "answer",
            "A plant of Corvus Electronics in Kiel was opened on 4 May 2011. "
            "The move of Osprey Airlines' headquarters to Linz on 9 June 2012 cost $7 million.",
        ),
    ],
    [("report-1", "summary-1"), ("report-2", "summary-2"), ("summary-1", "answer"), ("summary-2", "answer")],
)

trail = verify(process, judge=OfflineJudge(), q=3)
for claim in trail.claims:
    if claim.provenance is not None:
        print(f"{claim.verdict} through {' -> '.join(claim.provenance.paths[0])}: {claim.claim.text}")
    elif claim.origin is not None:
        print(f"{claim.verdict}, entered at {', '.join(claim.origin.nodes)}: {claim.claim.text}")
