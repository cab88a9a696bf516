"""One case the plain way, in a process of its own: load, run on the CPU, run on the device, compare with a tolerance.

    python fresh_process_case.py MODEL_FOLDER ARCHITECTURE CLASS MODE

Loading and inputs are the worker's own, so that both sides of the comparison run the same model on the same inputs.
"""

import sys

import torch
import torch_tpu
from modelfarm_worker.inputs import make_inputs
from modelfarm_worker.leaves import flatten
from modelfarm_worker.model import load_model
from modelfarm_worker.workloads import forward_options

path, architecture, name, mode = sys.argv[1:]
torch_tpu._loader._init_device("tpu")
torch.set_num_threads(1)
described = {
    "path": path,
    "harness": "transformers",
    "architecture": architecture,
    "class": name,
    "weights": "real",
    "trust_remote_code": False,
}
model = load_model(described, torch.float32, "eager", 0)
inputs, _ = make_inputs(model, described, "forward", "default", 0)
with torch.no_grad():
    expected = flatten(model(**inputs, **forward_options(model)))
    model = model.to("tpu")
    on_device = {key: value.to("tpu") for key, value in inputs.items()}
    if mode == "compiled":
        found = flatten(torch.compile(model, backend="tpu")(**on_device, **forward_options(model)))
    else:
        eager = {"strict-eager": "DEFER_NEVER", "defer-and-fuse": "DEFER_AND_FUSE"}[mode]
        with torch.tpu.set_eager_mode(getattr(torch.tpu.EagerMode, eager)):
            found = flatten(model(**on_device, **forward_options(model)))
    for key, value in expected.items():
        torch.testing.assert_close(found[key].cpu(), value, rtol=1e-3, atol=1e-3)
