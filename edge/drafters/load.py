"""From a device's settings to its drafter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edge.drafters.base import Drafter
from edge.errors import EdgeError
from edge.models import DRAFT_NAME, Progress, ensure, find, pair

if TYPE_CHECKING:
    from edge.config import DeviceSettings
    from edge.drafters.llama_cpp import LlamaCppDrafter


class DrafterUnavailable(EdgeError):
    """What was asked for can't draft on this device."""


def load_drafter(
    settings: DeviceSettings,
    *,
    fetched: Progress | None = None,
    loaded: Callable[[float], None] | None = None,
) -> Drafter | None:
    """The drafter that the settings name; None for `none`. Blocks for seconds, or minutes on the very first time.

    The embedded draft model is fetched if it is missing (`fetched` is told how far), any other model is not. Raises
    ModelError or DrafterUnavailable.
    """
    if settings.drafter == "none":
        return None
    if settings.drafter == "ngram":
        from edge.drafters.ngram import NgramDrafter

        return NgramDrafter()
    if settings.drafter == "mlc":
        return _load_mlc(settings)
    return _load_llama(settings, fetched, loaded)


def mlc_model(settings: DeviceSettings) -> tuple[Path, Path]:
    """Folder and compiled library of drafter `mlc`. Raises DrafterUnavailable if they aren't there."""
    folder = Path(settings.draft_model).expanduser()
    if not folder.is_absolute() and not folder.is_dir():
        folder = settings.model_dir.expanduser() / folder
    if not (folder / "mlc-chat-config.json").is_file():
        raise DrafterUnavailable(
            f"{folder} is no model of MLC-LLM: PACELINE_DRAFT_MODEL names the folder that `mlc_llm gen_config` wrote."
        )
    library = Path(settings.mlc_library).expanduser()
    if not settings.mlc_library or not library.is_file():
        raise DrafterUnavailable("PACELINE_MLC_LIBRARY must name what `mlc_llm compile` made of the model.")
    return folder, library


def _load_mlc(settings: DeviceSettings) -> Drafter:
    from edge.drafters import mlc

    folder, library = mlc_model(settings)
    if settings.target_tokenizer:
        raise DrafterUnavailable("Drafting by text (PACELINE_TARGET_TOKENIZER) needs a drafter of llama.cpp.")
    try:
        return mlc.load(
            folder,
            library,
            device=settings.mlc_device,
            streams=settings.draft_streams,
            context=settings.draft_context,
        )
    except ImportError as error:
        raise DrafterUnavailable(f"No MLC-LLM here ({error}); docs/edge.md says how to install it.") from error


def _load_llama(settings: DeviceSettings, fetched: Progress | None, loaded: Callable[[float], None] | None) -> Drafter:
    try:
        from edge.drafters.llama_cpp import LlamaCppDrafter
        from edge.llama import LlamaError
    except ImportError as error:
        raise DrafterUnavailable(
            f"No llama.cpp here ({error}): `pip install 'paceline[llama]'`, or draft without it: --drafter ngram."
        ) from error
    directory = settings.model_dir.expanduser()
    if settings.draft_model == DRAFT_NAME and not pair(directory).draft.is_file():
        ensure(directory, target=False, progress=fetched)
    path = find(settings.draft_model, directory)
    try:
        drafter = LlamaCppDrafter(
            path,
            streams=settings.draft_streams,
            context=settings.draft_context,
            threads=settings.draft_threads,
            progress=loaded,
        )
    except LlamaError as error:
        raise DrafterUnavailable(str(error)) from error
    if not settings.target_tokenizer:
        return drafter
    try:
        return _by_text(drafter, find(settings.target_tokenizer, directory))
    except (LlamaError, EdgeError) as error:
        drafter.close()
        raise DrafterUnavailable(str(error)) from error


def _by_text(drafter: LlamaCppDrafter, tokenizer: Path) -> Drafter:
    """The drafter for a target with that tokenizer. Raises DrafterUnavailable if no text is a token in both."""
    from edge.drafters.by_text import ByTextDrafter, shared_pieces
    from edge.llama import Model

    model = Model(tokenizer, vocabulary_only=True)
    if model.vocabulary.fingerprint == drafter.fingerprint:
        model.close()
        return drafter
    if not shared_pieces(model.vocabulary, drafter.vocabulary):
        model.close()
        raise DrafterUnavailable(f"{drafter.name} and {tokenizer.name} have no token in common: nothing aligns.")
    own = drafter.markup
    return ByTextDrafter(drafter, model.vocabulary, markup=model.vocabulary.markup, own=own, release=model.close)
