-- +goose Up
-- An array: many jobs of one submission that differ by their index and share what
-- they run.
create table job_arrays (
  id           bigint generated always as identity primary key,
  project_id   bigint not null references groups,
  member_id    bigint not null references persons,
  name         text not null default '' check (length(name) <= 200),
  indices      text not null check (length(indices) between 1 and 4096),  -- as written: 0-99, 1-9:2,12
  size         int not null check (size between 1 and 10000),
  lowest       int not null check (lowest >= 0),
  highest      int not null check (highest >= lowest),
  at_once      int not null check (at_once >= 0),     -- jobs that may be queued or live at once; 0 = all
  waits        boolean not null,                      -- for what it is to start after
  first_job    bigint references jobs,                -- set in the same transaction; its command is all jobs'
  submitted_at timestamptz not null
);
create unique index job_arrays_first on job_arrays (first_job);

alter table jobs
  add column array_id bigint references job_arrays,
  add column array_index int,
  add column listed boolean not null default true,    -- false for all but the first of an array: lists show it once
  add constraint jobs_array_both check ((array_id is null) = (array_index is null));
create unique index jobs_array on jobs (array_id, array_index) where array_id is not null;
-- Counts of an array and its next blocked job come from the index alone.
create index jobs_array_state on jobs (array_id, state, blocked, array_index) include (charged) where array_id is not null;
create index jobs_listed on jobs (id desc) where listed;
create index jobs_project_listed on jobs (project_id, id desc) where listed;
create index jobs_member_listed on jobs (member_id, id desc) where listed;
-- The queue without what is blocked, by whose turn it may be.
drop index jobs_pending;
create index jobs_queue on jobs (pool_id, project_id, member_id, urgency desc, queue_seq, id) where state = 'pending' and not blocked;

-- Who waits and what is waited for: a job or a whole array.
alter table job_dependencies
  drop constraint job_dependencies_pkey,
  alter column job_id drop not null,
  alter column on_job drop not null,
  add column array_id bigint references job_arrays,
  add column on_array bigint references job_arrays,
  add constraint job_dependencies_waiter check (num_nonnulls(job_id, array_id) = 1),
  add constraint job_dependencies_awaited check (num_nonnulls(on_job, on_array) = 1),
  add constraint job_dependencies_earlier_array check (on_array < array_id);
create unique index job_dependencies_once on job_dependencies (job_id, array_id, on_job, on_array) nulls not distinct;
create index job_dependencies_array on job_dependencies (array_id) where array_id is not null;
create index job_dependencies_on_array on job_dependencies (on_array) where on_array is not null;
