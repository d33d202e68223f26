"""A worker on a CPU in which vLLM's asynchronous scheduling can be tried: CUDA's streams and events, which it asks for
there, do nothing. Copies and kernels are done when they are called on a CPU, so nothing has to be waited for.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from vllm.v1.worker.cpu_worker import CPUWorker


class Nothing:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cpu")

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...

    def wait_event(self, *_: Any) -> None: ...


class StreamlessWorker(CPUWorker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        torch.Event = torch.cuda.Event = torch.cuda.Stream = Nothing
        torch.cuda.stream = lambda _: nullcontext()
        torch.cuda.current_stream = Nothing
        super().__init__(*args, **kwargs)
