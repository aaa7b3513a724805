-- +goose Up
-- A project's page compares the protection its attempts asked for with what they used.
create index attempts_protected on attempts (project_id, ended_at) where phase = 'closed' and min_ms > 0;
