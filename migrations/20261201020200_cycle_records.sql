-- +goose Up
-- What every dispatcher cycle decided from, for replays: a full snapshot at times,
-- what changed between. Snapshots hold ids only, no names, commands or secrets.
create table cycle_records (
  cycle       bigint primary key,
  base        bigint not null default 0,                   -- the cycle that a delta was made from; 0 = a full snapshot
  at          timestamptz not null,
  body        bytea not null,                              -- gzip of scheduler.Snapshot or scheduler.Delta as JSON
  bytes       bigint not null,                             -- of body
  plan_sha256 bytea not null check (length(plan_sha256) = 32),
  policy      bigint not null,
  starts      int not null,
  evictions   int not null,
  stops       int not null,
  steps       bigint not null,
  took_us     bigint not null                              -- snapshot, decision and apply
);
alter table cycle_records alter column body set storage external; -- compressed already
alter table dispatcher
  add column records_dropped bigint not null default 0,    -- cycles up to this one are not kept any more
  add column records_dropped_at timestamptz;
