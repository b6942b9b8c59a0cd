#!/bin/sh
# Creates the roles and the database of the gateway, as migrations/README.md says. Postgres' image runs it once.
set -eu
psql -v ON_ERROR_STOP=1 -v owner="$PML_OWNER_PASSWORD" -v app="$PML_APP_PASSWORD" -U postgres <<'SQL'
create role pml_owner login password :'owner' nosuperuser nobypassrls;
create role pml_app login password :'app' nosuperuser nobypassrls;
create database pml owner pml_owner;
SQL
