-- +goose Up
-- How far the storage bandwidth that jobs of a class use swings around its mean: the
-- moving mean of variance ÷ mean², from attempts that had a node to themselves.
alter table job_classes
  add column sto_seen    bigint not null default 0,
  add column sto_var_ppm bigint not null default 0;

-- Who was on a node with whom, once it is over.
create index placements_ended on placements (node_id, ended_at) where ended;
drop index placements_shared;
