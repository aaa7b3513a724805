-- +goose Up
-- What a job asks for beside GPUs, cores and memory: the memory of each device
-- (0 = as large a part of it as of its compute), network, storage bandwidth and the
-- processors that move data, per node. The variances say how far its kind strays.
alter table jobs
  add column hbm_mib   bigint not null default 0 check (hbm_mib >= 0),
  add column net_mbps  bigint not null default 0 check (net_mbps >= 0),
  add column sto_mbps  bigint not null default 0 check (sto_mbps >= 0),
  add column ioc_milli bigint not null default 0 check (ioc_milli >= 0),
  add column hbm_var   bigint not null default 0 check (hbm_var >= 0),
  add column sto_var   bigint not null default 0 check (sto_var >= 0),
  add column ioc_var   bigint not null default 0 check (ioc_var >= 0);
alter table placements
  add column hbm_mib   bigint not null default 0 check (hbm_mib >= 0),
  add column net_mbps  bigint not null default 0 check (net_mbps >= 0),
  add column sto_mbps  bigint not null default 0 check (sto_mbps >= 0),
  add column ioc_milli bigint not null default 0 check (ioc_milli >= 0),
  add column hbm_var   bigint not null default 0 check (hbm_var >= 0),
  add column sto_var   bigint not null default 0 check (sto_var >= 0),
  add column ioc_var   bigint not null default 0 check (ioc_var >= 0);

-- What a job of the pool asks for per GPU when its owner does not say.
alter table pools
  add column gpu_net_mbps  bigint not null default 0 check (gpu_net_mbps >= 0),
  add column gpu_sto_mbps  bigint not null default 0 check (gpu_sto_mbps >= 0),
  add column gpu_ioc_milli bigint not null default 0 check (gpu_ioc_milli >= 0);

-- What a pool's jobs are like, learnt from its own submissions: scheduler.Mix.
create table pool_mixes (
  pool_id   bigint primary key references pools,
  version   bigint not null,
  span_ms   bigint not null,
  learnt_at timestamptz not null,
  kinds     jsonb not null
);
create index jobs_submitted on jobs (pool_id, submitted_at);
