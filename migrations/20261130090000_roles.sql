-- +goose Up
-- The role the server connects as. Roles belong to the cluster, not to the
-- database: several databases share it, and one may be migrated while another
-- creates it. Its rights are granted after every migration (grants.go).
-- +goose StatementBegin
do $$
begin
	if not exists (select from pg_roles where rolname = 'tranche_app') then
		create role tranche_app login nosuperuser nocreatedb nocreaterole noinherit noreplication;
	end if;
exception when duplicate_object or unique_violation then
	null; -- another database's migration was faster
end
$$;
-- +goose StatementEnd
