# A small image with `zerograd check`; it reads code and needs no torch.
#   docker build --tag zerograd .
#   docker run --rm --volume "$PWD:/code:ro" zerograd
FROM python:3.13-alpine AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-alpine
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir /wheels/*.whl && rm -r /wheels
ENV ZEROGRAD_CACHE_DIR=/tmp/zerograd
USER 65534:65534
WORKDIR /code
ENTRYPOINT ["zerograd"]
CMD ["check"]
