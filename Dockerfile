# Three images: `everturn` (API and workers), which is the one that is built when none is named; `kernels`: the same with
# Python and its packages, for kernel hosts; and `temporal`: the same with Temporal's server, which
# deploy/temporal-on-postgres.ts runs. No process in them is root.

FROM node:24.21.0-bookworm-slim AS node
# The certificates are for a Temporal or a Redis that wants TLS; Node has its own.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
  && mkdir /data && chown 1000:1000 /data
WORKDIR /app

FROM node AS build
COPY package.json package-lock.json ./
RUN npm ci --omit=dev
COPY . .
RUN node src/temporal/make-workflow-bundles.ts && deploy/prune-packages

FROM node AS app
COPY --from=build /app /app
# A number, so that Kubernetes' runAsNonRoot can see that it is not root.
USER 1000:1000
ENV NODE_ENV=production EVERTURN_DATA=/data
VOLUME /data
LABEL org.opencontainers.image.licenses=Apache-2.0

FROM app AS kernels
USER root
# The sandboxes of sessions are in /sandboxes: programs must be able to run there, as they are not in a /tmp of Docker.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap python3-venv && rm -rf /var/lib/apt/lists/* \
  && mkdir /sandboxes && chown 1000:1000 /sandboxes
RUN PIP_NO_CACHE_DIR=1 node deploy/kernel-environment.ts /opt/kernels
USER 1000:1000
ENV EVERTURN_KERNEL_PYTHON=/opt/kernels/bin/python3 TMPDIR=/sandboxes
VOLUME /sandboxes
LABEL org.opencontainers.image.title="Everturn's kernel host" \
  org.opencontainers.image.description="Runs the code of Everturn's agents in Python, behind walls"
ENTRYPOINT ["node", "src/main.ts"]
CMD ["kernel-host"]

FROM golang:1.26-bookworm AS temporal-build
RUN CGO_ENABLED=0 go install go.temporal.io/server/cmd/server@v1.29.1 go.temporal.io/server/cmd/tools/sql@v1.29.1

FROM app AS temporal
COPY --from=temporal-build /go/bin/server /opt/everturn/bin/temporal-server-1.29.1
COPY --from=temporal-build /go/bin/sql /opt/everturn/bin/temporal-sql-tool-1.29.1
LABEL org.opencontainers.image.title="Everturn's Temporal" \
  org.opencontainers.image.description="Temporal 1.29.1 on PostgreSQL, with the databases, namespace and settings of Everturn"
ENV XDG_CACHE_HOME=/opt
ENTRYPOINT ["node", "deploy/temporal-on-postgres.ts", "--folder", "/tmp/temporal", "--health-port", "8081"]
CMD ["--host", "0.0.0.0"]
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["/app/deploy/healthy", "8081"]

FROM app AS everturn
LABEL org.opencontainers.image.title=Everturn \
  org.opencontainers.image.description="A server that runs AI agent conversations as durable Temporal workflows"
EXPOSE 8080
ENTRYPOINT ["node", "src/main.ts"]
CMD ["api"]
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["/app/deploy/healthy", "8080"]
