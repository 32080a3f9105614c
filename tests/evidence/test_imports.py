"""What `import gnomon.evidence` loads: every command pays for it."""

import subprocess
import sys


def test_the_evidence_layer_imports_lightly():
    code = "import sys, gnomon.evidence.contrasts, gnomon.evidence.calibration; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"scipy.stats", "statsmodels", "pandas", "torch", "sklearn"} & set(loaded)
