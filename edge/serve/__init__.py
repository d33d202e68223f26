"""`paceline-edge serve`: an OpenAI-compatible endpoint on the device, whose answers take the hybrid path.

app.py         the HTTP side: addresses, keys, bodies, headers
dispatch.py    which path serves a request, and what happens when one can't
question.py    a body to jobs and a renderer (edge/openai), and the device's own wishes
sources.py     a job's tokens: from the hybrid stream, or from the drafter alone
answer.py      the tokens of all choices, through the renderer
socket.py      the connection to the gateway, made when it is wanted
proxy.py       the gateway's own HTTP API, passed through

Needs the extra `serve`; nothing else of `edge` imports this package.
"""
