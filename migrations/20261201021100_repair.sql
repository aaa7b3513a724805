-- +goose Up
-- The repair hook: ordered once per drain or maintenance, when the node is empty.
alter table nodes
  add column repair_n bigint not null default 0,           -- orders given so far; the last one's number
  add column repair_for timestamptz,                       -- begin of the drain or maintenance it was given for
  add column repair_asked_at timestamptz,
  add column repair_done_at timestamptz,
  add column repair_result text not null default '' check (length(repair_result) <= 5000);
