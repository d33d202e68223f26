"""Where drafts come from: a small model (llama.cpp, MLC-LLM), the prompt itself (n-gram), or a script."""
