"""The engine that the settings name. The library that it needs is imported here, and only then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from app.config import Settings
from app.engine.base import Engine
from edge.openai.vocabulary import Vocabulary


def build_engine(settings: Settings, *, progress: Callable[[float], None] | None = None) -> Engine:
    """Raises ImportError, with the missing library's name, if one isn't installed.

    `progress` is told, in another thread, how much of the model is loaded, 0 to 1; not by replicas.
    """
    if settings.replicas:
        return _replicated(settings)
    if settings.engine == "scripted":
        return _scripted(settings)()
    if settings.engine == "vllm":
        return _vllm(settings)()
    return _llama_cpp(settings)(progress=progress)


def _replicated(settings: Settings) -> Engine:
    from app.engine.ray_pool import RayPool

    build: Callable[[], Engine]
    vocabulary: Callable[[], AbstractContextManager[Vocabulary]]
    if settings.engine == "scripted":
        from edge.script import ScriptVocabulary

        build, vocabulary = _scripted(settings), lambda: nullcontext(ScriptVocabulary())
    elif settings.engine == "vllm":
        from edge.openai import hf_vocabulary

        build, vocabulary = _vllm(settings), partial(hf_vocabulary.open_vocabulary, settings.vllm_model)
    else:
        from app.engine.llama_cpp import open_vocabulary

        build, vocabulary = _llama_cpp(settings), partial(open_vocabulary, settings.target_path)
    return RayPool(
        build,
        vocabulary,
        replicas=settings.replicas,
        address=settings.ray_address,
        cpus=settings.replica_cpus,
        gpus=settings.gpus,
        streams=settings.engine_streams,
        queue=settings.engine_queue,
    )


def _scripted(settings: Settings) -> Callable[..., Engine]:
    from app.engine.scripted import ScriptedEngine

    return partial(
        ScriptedEngine,
        model_id=settings.target_id or "scripted",
        step_s=settings.scripted_step_ms / 1000,
        streams=settings.engine_streams,
        context=settings.context,
        queue=settings.engine_queue,
        queue_s=settings.engine_queue_s,
        step_tokens=settings.engine_step_tokens,
        draft_tokens=settings.engine_draft_tokens,
    )


def _llama_cpp(settings: Settings) -> Callable[..., Engine]:
    from app.engine.llama_cpp import LlamaCppEngine

    return partial(
        LlamaCppEngine,
        settings.target_path.absolute(),  # a replica's working folder is another
        model_id=settings.target_id or settings.target_path.stem,
        context=settings.context,
        streams=settings.engine_streams,
        threads=settings.target_threads,
        gpu_layers=settings.gpu_layers,
        queue=settings.engine_queue,
        queue_s=settings.engine_queue_s,
        share_prefixes=settings.share_prefixes,
        step_tokens=settings.engine_step_tokens,
        prefill_tokens=settings.engine_prefill_tokens,
        draft_tokens=settings.engine_draft_tokens,
        kv_tokens=settings.engine_kv_tokens or None,
        reserve_tokens=settings.engine_reserve_tokens or None,
        prefill_slowdown=settings.engine_prefill_slowdown,
        tenant_kv=settings.tenant_kv_share,
        flash_attention=settings.flash_attention,
        steady=settings.steady,
    )


def _vllm(settings: Settings) -> Callable[..., Engine]:
    if find_spec("vllm") is None:
        raise ModuleNotFoundError("No module named 'vllm'", name="vllm")
    from app.engine.vllm_engine import VllmEngine

    folder = Path(settings.vllm_model).absolute()  # a replica's working folder is another
    return partial(
        VllmEngine,
        str(folder) if folder.is_dir() else settings.vllm_model,
        model_id=settings.target_id or Path(settings.vllm_model).name,
        context=settings.context,
        streams=settings.engine_streams,
        threads=settings.target_threads,
        queue=settings.engine_queue,
        draft_tokens=settings.engine_draft_tokens,
        share_prefixes=settings.share_prefixes,
        arguments=settings.vllm_args,
        ahead=settings.vllm_ahead,
    )
