#!/bin/sh
# Run once by the PostgreSQL image, on an empty database. Creates only what Everturn and Temporal need. Their user is not a
# superuser, who could run programs in the container. The superuser has no password, so that it can connect only from
# within the container.
set -eu
psql --set=ON_ERROR_STOP=1 --no-psqlrc --username="$POSTGRES_USER" --dbname=postgres --set=password="$POSTGRES_PASSWORD" <<'SQL'
create role everturn login password :'password';
create database everturn owner everturn;
create database temporal owner everturn;
create database temporal_visibility owner everturn;
alter role current_user password null;
SQL
