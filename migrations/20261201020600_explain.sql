-- +goose Up
-- What went before a waiting job, and the order of a pool's queue.
create index attempts_since on attempts (pool_id, since);
alter table job_reasons add column rank int not null
  generated always as (coalesce(nullif((reason ->> 'rank')::int, 0), 2147483647)) stored; -- beyond the heads: last
