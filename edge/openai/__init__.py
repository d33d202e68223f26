"""OpenAI's API as pure functions, used by gateway and device alike so that they can't drift apart."""
