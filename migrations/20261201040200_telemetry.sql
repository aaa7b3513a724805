-- +goose Up
-- What moves through a node, how its storage does, and what follows from it.
alter table nodes
  add column net_now_mbps bigint,                             -- of the last heartbeat, Mbit/s; null = the node cannot tell
  add column sto_now_mbps bigint,                             -- likewise, MB/s
  add column sto_ppm      bigint not null default 0 check (sto_ppm between 0 and 1000000), -- what is left of sto_mbps while degraded; 0 = all
  add column sto_run      bigint not null default -1,         -- last run of the storage hook; a new one has another number; -1 = the node has no hook
  add column sto_run_at   timestamptz,                        -- of it, real
  add column sto_said_ppm bigint,                             -- what the last run that worked said; null = none has
  add column sto_failed   text not null default '' check (length(sto_failed) <= 500), -- why the last run said nothing
  add column sto_mean_ppm bigint not null default 0,          -- moving mean over runs; 0 with sto_runs 0
  add column sto_runs     bigint not null default 0,          -- that went into it
  add column sto_streak   bigint not null default 0,          -- of them in a row that speak for a change
  add column sto_degraded_at timestamptz;                     -- real; set while degraded

alter table node_telemetry
  add column devices  int[],                                  -- their indices, in the order of the readings; null in rows from before
  add column net_mbps bigint,
  add column sto_mbps bigint,
  add column sto_said_ppm bigint;

-- How far jobs of a class (pool, project, GPUs per node, part of a GPU) use the GPU
-- memory they declare: moving mean and variance of peak ÷ declared.
create table job_classes (
  pool_id    bigint not null references pools,
  project_id bigint not null references groups,
  gpus       bigint not null,
  gpu_milli  bigint not null,
  seen       bigint not null,                                 -- attempts that went into it
  mean_ppm   bigint not null,
  var_ppm    bigint not null,                                 -- variance of the ratio, millionths
  at         timestamptz not null,
  primary key (pool_id, project_id, gpus, gpu_milli)
);
alter table attempts
  add column hbm_peak_ppm bigint;                             -- peak ÷ declared GPU memory; -1 = not measured; null = not looked at yet
update attempts set hbm_peak_ppm = -1 where phase = 'closed';
-- Who shared a device with whom, once it is over.
create index placements_shared on placements (node_id, ended_at) where ended and gpu_milli < 1000;
create index attempts_unlearnt on attempts (ended_at, id) where phase = 'closed' and hbm_peak_ppm is null;

-- Fragmentation and stall of each pool, one row per five minutes.
create table pool_indices (
  pool_id   bigint not null references pools,
  at        timestamptz not null,
  gpus      bigint not null,                                  -- free GPUs, 1/1000
  unfit     bigint not null,                                  -- of them, those that no job of the usual mix can take
  fit_ppm   bigint not null, shape_ppm bigint not null, raw_ppm bigint not null, gpu_ppm bigint not null,
  stall_ppm bigint not null,
  measured  int not null,                                     -- nodes whose own readings went into stall_ppm
  nodes     int not null,                                     -- nodes that went into it at all
  mix       bigint not null,                                  -- version of the mix; 0 = nothing learnt yet
  primary key (pool_id, at)
);
create index pool_indices_at on pool_indices (at);
