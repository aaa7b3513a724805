-- +goose Up
-- Seconds without protection cost past_ppm of the full price; 0 = the full price.
-- price_turns are the elapsed ms at which the price changes, full before the first.
alter table attempts
  add column past_ppm bigint not null default 0 check (past_ppm >= 0),
  add column price_turns bigint[] not null default '{}';
