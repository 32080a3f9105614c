"""Where processes come from: files of a plain format, output of GraphRAG, traces of LangChain and OpenTelemetry.

:class:`~gnomon.retrieval.veritrail.loaders.recorder.Recorder` writes a process down while a pipeline of one's own runs.
"""
