-- +goose Up
-- Most charged GPUs that a member has at once in the project, funded; 0 = no cap.
alter table member_shares add column cap_gpus bigint not null default 0 check (cap_gpus between 0 and 1000000);
