-- +goose Up
-- A job may wait for others: "ok" until they ended well, "any" until they ended.
-- Blocked ones wait outside the queue and keep their place in it.
alter table jobs add column blocked boolean not null default false;
create table job_dependencies (
  job_id bigint not null references jobs,
  on_job bigint not null references jobs,
  kind   text not null check (kind in ('ok', 'any')),
  primary key (job_id, on_job),
  constraint job_dependencies_earlier check (on_job < job_id)   -- so that there is no circle
);
create index job_dependencies_on on job_dependencies (on_job);
