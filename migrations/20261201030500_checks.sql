-- +goose Up
-- Nodes' own health checks, and what the dispatcher makes of them. Real time.
alter table nodes
  add column check_n      bigint not null default 0,         -- of the last run; a new one has another number; -1 = the node has no check
  add column check_last   text not null default '' check (check_last in ('', 'ok', 'degraded', 'fault')),
  add column check_why    text not null default '' check (length(check_why) <= 500),
  add column check_streak bigint not null default 0,         -- runs in a row that were good, or that were bad
  add column check_since  timestamptz,                       -- first of them
  add column check_bad_why text not null default '' check (length(check_bad_why) <= 500), -- of the last bad run
  add column degraded_since timestamptz,                     -- nothing new is placed while set
  add column drained_by_check text not null default '' check (drained_by_check in ('', 'degraded', 'fault'));
