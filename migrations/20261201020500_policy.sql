-- +goose Up
alter table policies add column why text not null default '' check (length(why) <= 500);
