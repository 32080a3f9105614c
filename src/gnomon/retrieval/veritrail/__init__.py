"""Is every claim of a generated text supported by its sources, and if not, which step of the process brought it in?

A process is a graph: source documents, the outputs of every generative step, the final text. A claim of the final text
is followed towards the sources, step by step; a supported claim gets its path, an unsupported one the step where it
entered.

    >>> from gnomon.retrieval.veritrail import Node, OracleJudge, Process, verify
    >>> texts = {"report": "Corvus shut a plant.", "summary": "Corvus opened a plant.", "answer": "A plant opened."}
    >>> process = Process(
    ...     [Node(name, text) for name, text in texts.items()], [("report", "summary"), ("summary", "answer")]
    ... )
    >>> trail = verify(process, judge=OracleJudge({"c1": {"summary#0"}}), claims=["A plant opened."])
    >>> trail.claims[0].verdict, trail.claims[0].origin.nodes
    ('unsupported', ('summary',))

Paper: Metropolitansky & Larson, "VeriTrail: Closed-Domain Hallucination Detection with Traceability" (ICLR 2026),
arXiv 2505.21786.
"""

from gnomon.retrieval.veritrail.check import JudgeCheck, judge_check
from gnomon.retrieval.veritrail.claims import Claim, Dropped, Extraction
from gnomon.retrieval.veritrail.estimate import Estimate, estimate
from gnomon.retrieval.veritrail.generator import make_process
from gnomon.retrieval.veritrail.judges.chat import ChatJudge
from gnomon.retrieval.veritrail.judges.judge import Judge
from gnomon.retrieval.veritrail.judges.limited import LengthLimitedJudge
from gnomon.retrieval.veritrail.judges.local import LocalJudge
from gnomon.retrieval.veritrail.judges.offline import OfflineJudge
from gnomon.retrieval.veritrail.judges.oracle import NoisyJudge, OracleJudge
from gnomon.retrieval.veritrail.loaders.recorder import Recorder
from gnomon.retrieval.veritrail.process import GraphError, Node, Process
from gnomon.retrieval.veritrail.sentences import Sentence, SentenceIndex
from gnomon.retrieval.veritrail.trail import ClaimTrail, Trail
from gnomon.retrieval.veritrail.trail_file import read_trail, write_trail
from gnomon.retrieval.veritrail.verify import verify

__all__ = [
    "ChatJudge",
    "Claim",
    "ClaimTrail",
    "Dropped",
    "Estimate",
    "Extraction",
    "GraphError",
    "Judge",
    "JudgeCheck",
    "LengthLimitedJudge",
    "LocalJudge",
    "Node",
    "NoisyJudge",
    "OfflineJudge",
    "OracleJudge",
    "Process",
    "Recorder",
    "Sentence",
    "SentenceIndex",
    "Trail",
    "estimate",
    "judge_check",
    "make_process",
    "read_trail",
    "verify",
    "write_trail",
]
