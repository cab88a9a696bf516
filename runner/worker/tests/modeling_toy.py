"""A model whose behaviour its configuration chooses: what a hostile or broken repository may bring."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class ToyConfig(PretrainedConfig):
    model_type = "toy"

    def __init__(self, behaviour="plain", vocab_size=32, hidden_size=8, **kwargs):
        super().__init__(**kwargs)
        self.behaviour = behaviour
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size


class ToyModel(PreTrainedModel):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embedding = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.projection = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, input_ids, return_dict=True):
        hidden = self.projection(self.embedding(input_ids))
        hidden = getattr(self, self.config.behaviour)(hidden)
        return BaseModelOutput(last_hidden_state=hidden * 2)

    def plain(self, hidden):
        return hidden

    def graph_break(self, hidden):
        torch._dynamo.graph_break()
        return hidden + 1

    @torch._dynamo.disable
    def _eager_only(self, hidden):
        return hidden + 1

    def raises(self, hidden):
        raise KeyError("no such thing \ud800 " + "x" * 200_000)

    def leaves(self, hidden):
        sys.exit(0)

    def recurses(self, hidden):
        return self.recurses(hidden)

    def crashes(self, hidden):
        return ctypes.string_at(0)

    def hangs(self, hidden):
        subprocess.Popen(["sleep", "1000"])
        escaped = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print("escaped", escaped.pid, flush=True)
        time.sleep(1000)

    def looks_around(self, hidden):
        for link in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                print("descriptor", link.name, link.readlink())
        print("session", os.getsid(0) == os.getpid(), flush=True)
        return hidden
