# Two images: `everturn` (API and workers), which is the one that is built when none is named, and `temporal`: the same
# with Temporal's server, which deploy/temporal-on-postgres.ts runs. Nobody in them is root.

FROM node:24.21.0-bookworm-slim AS app
# The certificates are for a Temporal or a Redis that wants TLS; Node has its own.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
  && mkdir /data && chown node:node /data
WORKDIR /app
COPY package.json package-lock.json ./
# The image has the Node that comes as a package.
RUN npm ci --omit=dev && npm cache clean --force && rm -r node_modules/node-linux-* node_modules/.bin/node
COPY . .
USER node
ENV NODE_ENV=production EVERTURN_DATA=/data XDG_CACHE_HOME=/tmp
VOLUME /data

FROM golang:1.26-bookworm AS temporal-build
RUN CGO_ENABLED=0 go install go.temporal.io/server/cmd/server@v1.29.1 go.temporal.io/server/cmd/tools/sql@v1.29.1

FROM app AS temporal
COPY --from=temporal-build /go/bin/server /opt/everturn/bin/temporal-server-1.29.1
COPY --from=temporal-build /go/bin/sql /opt/everturn/bin/temporal-sql-tool-1.29.1
ENV XDG_CACHE_HOME=/opt
ENTRYPOINT ["node", "deploy/temporal-on-postgres.ts", "--folder", "/tmp/temporal"]
CMD ["--host", "0.0.0.0"]
HEALTHCHECK --interval=5s --timeout=10s --start-period=60s CMD ["node", "deploy/temporal-on-postgres.ts", "--check"]

FROM app AS everturn
EXPOSE 8080
ENTRYPOINT ["node", "src/main.ts"]
CMD ["api"]
