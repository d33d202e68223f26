# The gateway with the llama.cpp engine on the CPU.
#
#   docker build -t paceline .
#   docker run --read-only --tmpfs /tmp -p 8000:8000 -e PACELINE_SECRET=$(openssl rand -hex 32) -v paceline:/data paceline
#
# The first start fetches the embedded model pair into the volume and prints an API key. For a model of your own:
#   -v /path/to/models:/models -e PACELINE_MODEL_DIR=/models -e PACELINE_TARGET_MODEL=name.gguf
# Keep PACELINE_SECRET: API keys are stored under it.

FROM node:22-slim AS page
WORKDIR /srv/paceline
COPY package.json package-lock.json .npmrc ./
COPY static static
RUN npm ci --omit=dev && npm run vendor

FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential cmake git \
    && rm -rf /var/lib/apt/lists/*
# Not for the CPU of the machine that builds: any x86-64 with AVX2, any arm64.
ARG CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF"
WORKDIR /srv/paceline
RUN python -m venv .venv
COPY requirements/run.txt requirements/
RUN .venv/bin/pip install --require-hashes -r requirements/run.txt
COPY . .
# In place: migrations and the page are found beside the code.
RUN .venv/bin/pip install --no-deps -e .

FROM python:3.11-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data paceline \
    && install -d -o paceline /data
COPY --from=build /srv/paceline /srv/paceline
COPY --from=page /srv/paceline/static/vendor /srv/paceline/static/vendor
ENV PATH=/srv/paceline/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PACELINE_HOST=0.0.0.0 \
    PACELINE_DATA_DIR=/data \
    PACELINE_MODEL_DIR=/data/models
USER paceline
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=5m CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz')"]
# `models pull` does nothing when the files are there; a model that was named is the operator's to provide.
CMD ["sh", "-c", "[ -n \"$PACELINE_TARGET_MODEL\" ] || paceline-edge models pull || exit 1; exec paceline-gateway serve"]
