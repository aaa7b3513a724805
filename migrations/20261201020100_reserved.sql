-- +goose Up
-- The reserved start: an attempt that has its hold, but no devices yet.
alter table attempts drop constraint attempts_phase_check;
alter table attempts add constraint attempts_phase_check
  check (phase in ('reserved', 'nominated', 'starting', 'running', 'ending', 'closed'));
alter table attempts
  add column reserved_since timestamptz,                   -- the bound on its wait runs from here
  add column reserved_at timestamptz,                      -- T*: the last protection on its nodes is over
  add column reserved_nodes bigint[] not null default '{}',
  add column reserved_domain text not null default '';
-- One promise per pool.
create unique index attempts_reserved_key on attempts (pool_id) where phase = 'reserved';
alter table dispatcher add column tried bigint[] not null default '{}'; -- large jobs that failed for capacity in the last cycle
-- What people see of a pool's reserved start; every cycle derives it anew.
create unlogged table reserved_views (
  pool_id bigint primary key references pools,
  view    jsonb not null,                                  -- scheduler.ReserveView
  at      timestamptz not null
);
-- Planned maintenance: nothing is protected beyond its begin, and the node empties
-- until its end; without an end it is open.
alter table nodes
  add column maint_from timestamptz,
  add column maint_until timestamptz,
  add column maint_reason text not null default '' check (length(maint_reason) <= 500),
  add constraint nodes_maint check (maint_from is not null or maint_until is null),
  add constraint nodes_maint_order check (maint_until is null or maint_until > maint_from);
