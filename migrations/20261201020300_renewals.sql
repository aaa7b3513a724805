-- +goose Up
-- Somebody sits at an interactive job: it is warned before its protection ends.
alter table jobs add column interactive boolean not null default false;
-- New protection in place is asked for here and answered by the next cycle.
alter table attempts
  add column renew_ms bigint not null default 0 check (renew_ms >= 0),
  add column renew_asked_at timestamptz,
  add column renew_answer jsonb,                           -- scheduler.Renewal
  add column renew_answered_at timestamptz,
  add column warned_ms bigint not null default 0,          -- the shortest threshold it was warned at
  add column warning jsonb,                                -- scheduler.Warning
  add column idle_since timestamptz;                       -- its devices have been unused since then
