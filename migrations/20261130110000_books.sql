-- +goose Up
-- Statements page through one account's transfers in the order of the entries,
-- and sum them up to a point without reading the table.
drop index transfers_debit;
drop index transfers_credit;
create index transfers_debit on transfers (debit, entry_id) include (amount);
create index transfers_credit on transfers (credit, entry_id) include (amount);
-- Posting asks each time whether any program gave out more than it received.
create index groups_overcommitted on groups (id) where overcommit_ppm > 1000000;
-- Balances of one project are found through its accounts.
create index accounts_group on accounts (group_id, pool_id) where group_id <> 0;
