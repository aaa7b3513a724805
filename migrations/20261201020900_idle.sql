-- +goose Up
-- Idle use: since when the devices are unused, and how long they were in spells
-- that are over. idle_since is set once it has lasted as long as the policy says.
alter table attempts
  add column quiet_since timestamptz,
  add column idle_ms bigint not null default 0 check (idle_ms >= 0);
