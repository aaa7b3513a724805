# Two programs from one build: tranched (server) and tranche (command line, agent).
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/tranched ./cmd/tranche

FROM debian:bookworm-slim AS server
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl tzdata \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home tranche
COPY --from=build /out/tranched /usr/local/bin/
USER tranche
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8080/readyz"]
ENTRYPOINT ["tranched"]
CMD ["serve"]

# A node. It runs jobs as the user "job": the agent refuses to run them as root.
FROM debian:bookworm-slim AS node
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates procps \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10002 job
COPY --from=build /out/tranche /usr/local/bin/
VOLUME /var/lib/tranche
ENTRYPOINT ["tranche"]
